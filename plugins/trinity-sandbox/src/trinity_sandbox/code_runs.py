"""Test a program that a model wrote."""

from __future__ import annotations

import re
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import EnvError

from trinity_sandbox.base import disk_is_full
from trinity_sandbox.disk import FULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity_sandbox.base import CommandResult, Limits, Sandbox

__all__ = ["code_of", "num_passed"]

_FENCED = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)

# The program runs as it would by itself. Its test is compiled apart, so a program that ends within
# a statement takes nothing into it, and neither a file nor a name shows test or word. A fork may
# not guess: the word counts from the first process alone.
_TEST = """\
def test(case, word):
    import os, site, sys
    names, run, write, process, first = globals(), exec, os.write, os.getpid, os.getpid()
    sys.argv[0], names["__file__"] = "program.py", os.path.abspath("program.py")
    with open("program.py", "rb") as file:
        program = compile(file.read(), names["__file__"], "exec")
    os.unlink("test.py")
    del names["test"]
    site.setquit()  # python -S leaves exit and quit out
    sys.setrecursionlimit(sys.getrecursionlimit() + 3)  # frames of this file, test, exec
    run(program, names)
    run(case, names)
    if word and process() == first:
        write(1, word)  # also where sys.stdout was replaced

test(compile({case!r}, "test", "exec"), {word!r})
"""


def code_of(text: str) -> str:
    """Return the last fenced block of a text; without one, all of it."""
    blocks: list[str] = _FENCED.findall(text)
    return blocks[-1] if blocks else text


def num_passed(
    code: str, cases: Sequence[Any], *, sandbox: Sandbox, limits: Limits
) -> tuple[int, int]:
    """Return how many tests a program passes, and how many took too long.

    Args:
        code: the program.
        cases: lines of assert, or objects with ``stdin`` and ``stdout`` (Any: of a row).
        sandbox: where each test runs.
        limits: of each test.

    Raises:
        EnvError: a test could not be started, or others filled the disk meanwhile.
    """
    passed = late = 0
    for case in cases:
        outcome = _outcome(code, case, sandbox=sandbox, limits=limits)
        if outcome.reason == FULL:
            raise EnvError(disk_is_full(sandbox.name, Path(tempfile.gettempdir())))
        passed += _passes(case, outcome)
        late += outcome.reason in {"wall_time", "cpu_time"}
    return passed, late


def _outcome(code: str, case: Any, *, sandbox: Sandbox, limits: Limits) -> CommandResult:
    """Run a program, then its assert; exit 1 if the program ended before the assert was over."""
    is_assert = isinstance(case, str)
    word = secrets.token_bytes(16) if is_assert else b""
    given = None if is_assert else case.get("stdin")  # None: other tests of the table have one
    test = _TEST.format(case=case if is_assert else "", word=word)
    program, binds = sandbox.python()
    outcome = sandbox.run(
        [program, "-ISB", "test.py"],
        files={"program.py": code, "test.py": test},
        binds=binds,
        limits=limits,
        stdin=b"" if given is None else str(given).encode(),
    )
    is_over = word in outcome.stdout
    return outcome if is_over or outcome.exit else replace(outcome, exit=1)


def _passes(case: Any, outcome: CommandResult) -> bool:
    if outcome.exit != 0 or outcome.reason:
        return False
    printed = outcome.stdout.decode(errors="replace")
    return isinstance(case, str) or _lines(printed) == _lines(str(case["stdout"]))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
