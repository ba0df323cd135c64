"""What tests of attacks look at, and how they attack."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from trinity.common.sandbox import CommandResult, Limits, sandbox_named
from trinity.common.sandbox.base import interpreter
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

ISOLATING = []
for one in ("bwrap", "landlock"):
    try:
        ISOLATING.append(sandbox_named(one))
    except ConfigError as error:
        sys.stderr.write(f"not tried: {error}\n")

LIMITS = Limits(cpu_s=1, wall_s=60, memory_bytes=256 << 20, processes=16, file_bytes=1 << 20)
PROGRAM, BINDS = interpreter()


@pytest.fixture(params=ISOLATING, ids=lambda sandbox: sandbox.name)
def sandbox(request):
    return request.param


def ran(sandbox, source: str, *, binds: Sequence[Path] = (), **limits) -> CommandResult:
    files = {"program.py": textwrap.dedent(source)}
    command = [PROGRAM, "-ISB", "program.py"]
    binds, limits = [*BINDS, *binds], replace(LIMITS, **limits)
    return sandbox.run(command, files=files, binds=binds, limits=limits)


def refused(sandbox, source: str, *, binds: Sequence[Path] = ()) -> CommandResult:
    """Run a program that prints `through` where its attack works, and fails where it does not."""
    outcome = ran(sandbox, source, binds=binds)

    assert outcome.exit != 0
    assert b"through" not in outcome.stdout
    assert b"Error" in outcome.stderr  # of Python: the attack was tried
    return outcome


def command_lines() -> dict[int, bytes]:
    """Return the command line of each process of this machine."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(file.parent.name)] = file.read_bytes()
        except OSError:  # it ended meanwhile
            continue
    return found
