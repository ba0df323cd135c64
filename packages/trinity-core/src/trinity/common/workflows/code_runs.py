"""Run a program that a model wrote, in processes with limits."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import EnvError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CodeLimits", "code_of", "num_passed"]

_FENCED = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_NO_LIMITS = 97  # the child's exit code where it could not set its limits
_MAX_FILE_BYTES = 1 << 20  # also of what it prints
_CHILD = """
import resource, sys
try:
    cpu, memory, size = map(int, sys.argv[1:4])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if hasattr(resource, "RLIMIT_NPROC"):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
except (ValueError, OSError) as error:
    print(error, file=sys.stderr)
    sys.exit(97)
with open("program.py", encoding="utf-8", errors="surrogatepass") as file:
    source = file.read()
exec(compile(source, "program.py", "exec"), {"__name__": "__main__"})
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeLimits:
    """Of each test."""

    cpu_s: float = 5.0
    memory_bytes: int = 512 << 20


def code_of(text: str) -> str:
    """Return the last fenced block of a text; without one, all of it."""
    blocks: list[str] = _FENCED.findall(text)
    return blocks[-1] if blocks else text


def num_passed(code: str, cases: Sequence[Any], *, limits: CodeLimits) -> tuple[int, int]:
    """Return how many tests a program passes, and how many took too long.

    Args:
        code: the program.
        cases: lines of assert, or objects with ``stdin`` and ``stdout`` (Any: of a row).
        limits: of each test.

    Raises:
        EnvError: a process could not be started.
    """
    passed = late = 0
    for case in cases:
        outcome = _passes(code, case, limits=limits)
        passed += outcome is True
        late += outcome is None
    return passed, late


def _passes(code: str, case: Any, *, limits: CodeLimits) -> bool | None:
    """Return whether a test passes; None: it took too long."""
    is_assert = isinstance(case, str)
    source = f"{code}\n{case}\n" if is_assert else code
    said = "" if is_assert else str(case.get("stdin", ""))
    with tempfile.TemporaryDirectory(prefix="trinity-code-") as folder:
        Path(folder, "program.py").write_text(source, encoding="utf-8", errors="surrogatepass")
        ended = _ended(folder, said, limits=limits)
        if ended is None or ended == -signal.SIGXCPU:
            return None
        printed = Path(folder, "printed").read_text(encoding="utf-8", errors="replace")
    if ended == _NO_LIMITS and not printed:
        raise EnvError("the process of a test could not set its limits. Is the system's lower?")
    return ended == 0 and (is_assert or _lines(printed) == _lines(str(case["stdout"])))


def _ended(folder: str, said: str, *, limits: CodeLimits) -> int | None:
    """Return how the program ended; None: it did not in time."""
    sizes = (math.ceil(limits.cpu_s), limits.memory_bytes, _MAX_FILE_BYTES)
    with Path(folder, "printed").open("wb") as printed, tempfile.TemporaryFile() as words:
        words.write(said.encode())
        words.seek(0)
        try:
            process = subprocess.Popen(
                [sys.executable, "-ISBc", _CHILD, *map(str, sizes)],
                cwd=folder,
                env={},
                stdin=words,
                stdout=printed,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvError(f"the process of a test cannot be started: {error}") from error
        try:
            return process.wait(2 * limits.cpu_s + 5.0)  # it may sleep, or wait for a processor
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
