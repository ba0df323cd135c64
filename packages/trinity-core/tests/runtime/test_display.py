"""What a person sees of a run where lines cannot be redrawn."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from trinity.runtime.display import Display
from trinity.runtime.record.progress import Progress


@pytest.fixture
def shown():
    return io.StringIO()


@pytest.fixture
def display(shown):
    return Display(Console(file=shown, highlight=False, width=200), title="run")


def steps_of(shown):
    return [line.split()[1] for line in shown.getvalue().splitlines() if line.startswith("step")]


def test_a_run_that_only_explores_shows_its_steps(display, shown) -> None:
    display.began(total_steps=2, progress=Progress(), has_trainer=False)
    display.explored(1, {"rollout/reward/mean": 0.5})
    display.explored(2, {"rollout/reward/mean": 0.75})

    assert steps_of(shown) == ["1/2", "2/2"]
    assert "reward 0.750" in shown.getvalue()


def test_a_run_of_agents_shows_their_calls_and_how_many_chats_went_on(display, shown) -> None:
    display.began(total_steps=1, progress=Progress(), has_trainer=False)
    calls = {"rollout/api/calls/mean": 2.5, "rollout/api/continued_ratio/mean": 0.875}
    display.explored(1, calls)

    assert "calls a run 2.5  chains continued 88%" in shown.getvalue()


def test_the_time_left_does_not_count_what_goes_before_the_first_step_again(
    display, shown, monkeypatch
) -> None:
    """It takes 20 s to load and evaluate, 4 s for the first step, and 2 s for each other one."""
    clock = iter([100.0, 124.0, 124.0, 126.0, 128.0])
    monkeypatch.setattr("trinity.runtime.display.time.perf_counter", lambda: next(clock))
    display.began(total_steps=10, progress=Progress(), has_trainer=False)
    for step in (1, 2, 3):
        display.explored(step, {})

    clocks = [line.split("  ")[-1] for line in shown.getvalue().splitlines()[1:]]
    assert clocks == ["24 s", "26 s, 16 s left", "28 s, 14 s left"]


def test_failed_runs_are_those_of_the_step(display, shown) -> None:
    display.began(total_steps=2, progress=Progress(), has_trainer=False)
    display.explored(1, {"rollout/failed_runs": 3.0})
    display.explored(2, {"rollout/failed_runs": 0.0})

    first, second = (line for line in shown.getvalue().splitlines() if line.startswith("step"))
    assert "failed runs 3" in first
    assert "failed runs" not in second


def test_several_optimizer_steps_of_one_explore_step_do_not_pass_the_end(display, shown) -> None:
    display.began(total_steps=2, progress=Progress())
    for step in (1, 2):
        display.explored(step, {})
        display.trained(2 * step - 1, {"actor/loss": 1.0})
        display.trained(2 * step, {"actor/loss": 1.0})

    assert steps_of(shown) == ["1/2", "2/2"]
    assert "left" in shown.getvalue()
    assert "-" not in shown.getvalue()  # no negative time


def test_many_steps_are_thinned_out_to_some_forty_lines(display, shown) -> None:
    display.began(total_steps=400, progress=Progress(), has_explorer=False)
    for step in range(1, 401):
        display.trained(step, {"actor/loss": 1.0})

    assert 40 <= len(steps_of(shown)) <= 42
    assert (steps_of(shown)[0], steps_of(shown)[-1]) == ("1/400", "400/400")


def test_a_stage_begins_without_the_numbers_of_the_one_before(display, shown) -> None:
    display.began(total_steps=1, progress=Progress(), stage="sft", has_explorer=False)
    display.trained(1, {"actor/loss": 1.0})
    display.began(total_steps=1, progress=Progress(), stage="grpo", has_trainer=False)
    display.explored(1, {"rollout/reward/mean": 0.5})

    lines = shown.getvalue().splitlines()
    assert [line for line in lines if "stage" in line] == [
        "run, stage sft: 1 steps",
        "run, stage grpo: 1 steps",
    ]
    assert "loss" not in lines[-1]
