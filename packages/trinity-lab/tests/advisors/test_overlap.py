"""Evaluation rows that are trained on."""

from __future__ import annotations

import json

import pytest
from trinity_lab.advisors.overlap import Overlap

from .conftest import explored, found, trained


@pytest.fixture
def overlapping(advisor, tmp_path):
    """Return a function that makes the advisor of a run with so many rows in both files."""

    def make(num_both: int):
        held = [f"held {number}" for number in range(100)]
        own = [f"own {number}" for number in range(50)]
        sets = []
        for name, prompts in (("train", own + held[:num_both]), ("held", held)):
            path = tmp_path / f"{name}.jsonl"
            path.write_text("".join(json.dumps({"q": one, "a": "x"}) + "\n" for one in prompts))
            format_ = {"prompt_key": "q", "response_key": "a"}
            sets.append({"name": name, "path": str(path), "format": format_})
        inputs = {"tasksets": [sets[0]], "eval_tasksets": [sets[1]]}
        return advisor(Overlap, buffer={"explorer_input": inputs})

    return make


def test_three_of_a_hundred_prompts_are_found_in_the_first_step(overlapping, tmp_path) -> None:
    step, advice = found(overlapping(3), [explored(1), trained(1)])

    assert step == 1
    assert advice.seen == (
        f"3 of 100 prompts of evaluation set held ({tmp_path}/held.jsonl) are training prompts "
        f"too, such as 'held 0'"
    )
    assert "split: train[:95%] and train[95%:]" in advice.remedy


def test_two_of_a_hundred_are_not(overlapping) -> None:
    steps = [one for step in range(1, 6) for one in (explored(step), trained(step))]

    assert found(overlapping(2), steps) is None


def test_a_taskset_that_is_no_file_here_is_left_alone(advisor) -> None:
    inputs = {"tasksets": [{"name": "t", "path": "a/hub"}], "eval_tasksets": [{"name": "e"}]}
    one = advisor(Overlap, buffer={"explorer_input": inputs})

    assert found(one, [explored(1), trained(1)]) is None
