"""Judgements of mathematical answers take bounded time, each apart from the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from trinity.common.rewards import AccuracyReward, equivalence
from trinity.common.rewards import judge as judge_module
from trinity.common.rewards.equivalence import is_equivalent
from trinity.common.rewards.judge import CUT, WAITED, Judge
from trinity.common.workflows import env_pool
from trinity.errors import JudgementCutError

TOWER = "$9^{9^{9^9}}$"
COSTLY = [TOWER, "$" + "{" * 900 + "$", r"$\binom{1000000}{500000}$"]


@pytest.fixture(scope="module")
def judge():
    """Yield a judge in this process: it takes a CPU second or two to make."""
    made = Judge()
    yield made
    made.close()


@pytest.mark.parametrize("text", COSTLY)
def test_what_takes_more_than_half_a_cpu_second_is_cut_by_name(text) -> None:
    with pytest.raises(JudgementCutError, match=r"cannot be said in 0\.5 CPU seconds"):
        AccuracyReward()(response=text, truth="5")


def cpu_s_of_children():
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.acceptance
def test_a_judge_goes_on_after_one_that_was_cut_and_uses_no_more_than_its_time(judge) -> None:
    before = cpu_s_of_children()
    verdicts = [judge.compare(text, "5") for text in (TOWER, "$5$", "$10^{10^8}$", "$6$")]
    judge.close()  # what its fork used is counted once that ended

    assert verdicts == [CUT, True, CUT, False]
    assert cpu_s_of_children() - before < 2 * 0.5 + 1.0


def test_a_wait_is_no_verdict_of_the_judge_and_ends_the_one_who_waits(judge, monkeypatch) -> None:
    monkeypatch.setattr(judge_module, "MAX_WAIT_S", 0.0)
    monkeypatch.setattr(judge_module, "_answer_for_ever", lambda *_: time.sleep(60))
    judge.close()  # the next fork never answers

    assert judge.compare("$x$", "$y$") == WAITED
    assert judge._fork is None


def test_a_wait_is_worded_as_one_and_asked_again_the_next_time(monkeypatch) -> None:
    verdicts = iter([WAITED, True])
    monkeypatch.setattr(
        env_pool, "shared_pool", lambda *_, **__: SimpleNamespace(lease=lambda: a_lease(verdicts))
    )

    with pytest.raises(JudgementCutError, match=r"60 s of waiting.* asked again") as raised:
        is_equivalent("$u+1$", "$1+u$")

    assert "CPU seconds" not in str(raised.value)
    assert is_equivalent("$u+1$", "$1+u$")


@contextmanager
def a_lease(verdicts):
    """Yield what answers as a judge does, with the next verdict."""
    yield SimpleNamespace(call=lambda *_: next(verdicts))


def test_as_many_judge_at_once_as_there_are_cores() -> None:
    num_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()

    assert equivalence._places._initial_value == min(equivalence.MAX_JUDGES, num_cores)


def test_a_judgement_that_fills_memory_is_cut_and_not_the_machine(judge) -> None:
    assert judge.compare("$2^{2^{40}}$", "$3^{2^{39}}$") == CUT


def test_only_what_looks_costly_waits_for_what_looks_costly() -> None:
    order = []

    def judge_tower(top):
        with suppress(JudgementCutError):
            is_equivalent(f"$9^{{9^{{9^{top}}}}}$", "5")
        order.append("cut")

    def judge_sum(bottom):
        order.append(is_equivalent(f"It is $x+1/{bottom}$", f"$1/{bottom}+x$"))

    towers = [threading.Thread(target=judge_tower, args=(top,)) for top in (11, 12)]
    others = [threading.Thread(target=judge_sum, args=(bottom,), daemon=True) for bottom in (2, 3)]
    with equivalence._costly_place:  # as while one is judged, for as long as it takes
        for thread in (*towers, *others):
            thread.start()
        for thread in others:
            thread.join(300)
        assert order == [True, True]
    for thread in towers:
        thread.join(300)

    assert order == [True, True, "cut", "cut"]


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("7", "8", False),
        ("0.50", "1/2", True),
        (r"\boxed{\frac{3}{4}}", "0.75", True),
        ("$-2/4$", "-0.5", True),
        (r"-\frac{1}{2}", "1/2", False),
        (TOWER, f" {TOWER}", True),
        ("", "5", False),
        (" 17 5\n10 ", "10", True),
        ("17 5 10", "17", False),
    ],
)
def test_plain_numbers_and_equal_texts_are_judged_without_a_process(
    monkeypatch, response, truth, expected
) -> None:
    started = []
    monkeypatch.setattr(env_pool, "shared_pool", lambda target, **_: started.append(target))

    assert is_equivalent(response, truth) is expected
    assert started == []


def test_a_row_of_integers_is_judged_as_the_judge_would(judge) -> None:
    parts = ["7", "10", "08", "123", "1234", "71322802"]
    rows = [f"{a} {b}{end}" for a in parts for b in parts for end in ("", "\n5")]
    told = {row: equivalence._told_by_numbers(row, "8") for row in rows}
    judged = {row: bool(judge.compare(row, "8")) for row in rows}

    known = {row: verdict for row, verdict in told.items() if verdict is not None}
    assert known == {row: judged[row] for row in known}
    assert known["123 08"] is True
    assert told["7 123"] is None  # seven thousand, one hundred and twenty-three
    assert judged["7 123"] is False


PROGRAM = """
import sys, threading
from trinity.common.rewards.equivalence import is_equivalent
print(is_equivalent("$x+1$", "$1+x$"), flush=True)
threading.Thread(target=is_equivalent, args=("$9^{9^{9^9}}$", "5")).start()
sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_judge_outlives_a_process_that_is_killed() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdout.readline() == b"True\n"
    judges = _descendants(program.pid)
    program.send_signal(signal.SIGKILL)
    program.wait()
    deadline = time.monotonic() + 20
    while any(map(_is_there, judges)) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert len(judges) >= 2  # a judge and its fork
    assert not any(map(_is_there, judges))


def _descendants(pid):
    own = [int(word) for word in os.popen(f"pgrep -P {pid}").read().split()]
    return own + [other for one in own for other in _descendants(one)]


def _is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
