"""A part that hangs or ends its process is a finding, and the checks of other parts go on."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trinity.extend import get_manager
from trinity_testing.bench import Bench
from trinity_testing.check import Case, Check, CheckContext


def exits(_, context):
    sys.exit(3)


def ends_the_process(_, context):
    os._exit(3)


def crashes(_, context):
    os.kill(os.getpid(), signal.SIGKILL)


def interrupts(_, context):
    raise KeyboardInterrupt


def hangs(_, context):
    time.sleep(60)


def holds(_, context):
    return None


def computes_in_more_threads(_, context):
    torch.set_num_threads(3)
    torch.ones(4_000_000).sum()


def results_of(*parts, limit_s=20.0):
    """Return what checks come to, each of a part of its own: (name of the part, its checks)."""
    bench = Bench(limit_s=limit_s)
    context = CheckContext(manager=get_manager())
    cases = [
        Case(
            check=Check(id=f"some.check{n}", function=f, remedy="Mend it.", kinds=frozenset({"k"})),
            subject=None,
            context=context,
            component=f"k/{part}",
        )
        for part, functions in parts
        for n, f in enumerate(functions)
    ]
    bench.cases = [replace(case, bench=bench, number=n) for n, case in enumerate(cases)]
    try:
        return [case.run() for case in bench.cases]
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (exits, "it ends the process: raised SystemExit: 3"),
        (ends_the_process, "it ended the process with exit code 3"),
        (crashes, "it ended the process by SIGKILL"),
        (interrupts, "it raised KeyboardInterrupt"),
    ],
)
def test_a_part_that_ends_its_process_is_a_finding_and_the_next_part_is_checked(function, message):
    wrong, right = results_of(("wrong", [function]), ("right", [holds]))

    assert (wrong.status, right.status) == ("FAIL", "PASS")
    assert wrong.message.startswith(message)
    assert wrong.remedy.startswith("Raise an error that says what is wrong")


def test_a_part_that_hangs_is_given_up_and_its_other_checks_are_skipped():
    hung, skipped, right = results_of(("wrong", [hangs, holds]), ("right", [holds]), limit_s=0.5)

    assert (hung.status, hung.message) == ("FAIL", "it did not end in 0.5 s")
    assert hung.remedy.startswith("Bound every wait")
    assert (skipped.status, skipped.message) == (
        "SKIP",
        "some.check0 found: it did not end in 0.5 s",
    )
    assert right.status == "PASS"
    assert hung.seconds >= 0.5


def test_a_part_that_asks_for_threads_and_computes_much_does_not_wait_for_those_left_behind():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.ones(4_000_000).sum()
        (right,) = results_of(("right", [computes_in_more_threads]), limit_s=5.0)
    finally:
        torch.set_num_threads(before)

    assert right.status == "PASS", right.message


def test_without_a_bench_an_exit_is_a_finding_too_and_the_users_own_interrupt_is_none():
    def case(function):
        check = Check(id="some.check", function=function, remedy="", kinds=frozenset({"k"}))
        return Case(check=check, subject=None, context=CheckContext(manager=get_manager()))

    assert case(exits).run().status == "FAIL"
    with pytest.raises(KeyboardInterrupt):
        case(interrupts).run()


def says_its_process(_, context):
    raise ValueError(f"<{os.getpid()}>")


def test_the_process_is_gone_when_the_bench_is_closed():
    bench = Bench()
    check = Check(id="some.pid", function=says_its_process, remedy="", kinds=frozenset({"k"}))
    case = Case(check=check, subject=None, context=CheckContext(manager=get_manager()), bench=bench)
    bench.cases = [case]

    pid = int(bench.run(case).message.partition("<")[2].partition(">")[0])
    was_there = os.path.exists(f"/proc/{pid}")
    bench.close()

    assert was_there
    assert pid != os.getpid()
    assert not os.path.exists(f"/proc/{pid}")


def leaves_a_file(_, context):
    raise ValueError(f"<{tempfile.mkdtemp()}>")


@pytest.mark.parametrize("last", [holds, ends_the_process])
def test_what_a_part_leaves_in_the_temporary_folder_goes_with_it(last):
    left, _ = results_of(("wrong", [leaves_a_file]), ("last", [last]))

    assert not Path(left.message.partition("<")[2].partition(">")[0]).exists()
