"""The program ``trinity``: the command line, in a process that ends with it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress

from trinity import starting
from trinity.cli.parent import stay_behind

# How the explorer names threads of runs whose time was up, those that close what they hold, loops
# that they block, and threads that they await.
_LEFT_BEHIND = (
    *("trinity-hung-", "trinity-closing-", "trinity-stuck-", "trinity-awaited"),
    # a step of a run that was broken off
    *("trinity-rollouts", "trinity-groups", "trinity-runner-calls"),
)


def program() -> None:
    """Run the command line and leave with its code, also where a run still hangs.

    A thread that is inside a library as the interpreter is taken apart would abort the process, and
    its exit code with it; one of an executor would be waited for.
    """
    stay_behind(sys.argv[1:])  # what follows is another process, where a run is asked for
    starting.program_begins()
    code = 0
    try:
        _refuse_overwritten()
        from trinity.cli.main import main

        main()
    except SystemExit as end:
        code = _code_of(end)
    except KeyboardInterrupt:  # a second one, while a command ended by the first
        code = starting.INTERRUPTED
    starting.command_ended(code)
    if not any(t.name.startswith(_LEFT_BEHIND) for t in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()  # while those threads may still run
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def _refuse_overwritten() -> None:
    """Leave where another distribution has our files: main would end in an error elsewhere."""
    from trinity.extend.ownership import overwritten

    problem = overwritten()
    if problem:
        sys.exit(f"Error: {problem}")


def _code_of(end: SystemExit) -> int:
    if isinstance(end.code, str):
        sys.stderr.write(f"{end.code}\n")
    return end.code if isinstance(end.code, int) else int(end.code is not None)
