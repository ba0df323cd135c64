"""What a workflow returns is refused, once, before anybody trains on it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import Workflow
from trinity_testing.builders import a_task


def a_row(**fields):
    given = {"tokens": [1, 2, 3, 4], "prompt_length": 2, "logprobs": [-0.5, -0.25], "reward": 1.0}
    return Experience(**given | fields)


def a_workflow(run, **members):
    names = {"run": run, "__module__": "my_workflows", "__qualname__": "Wf"}
    return type("Wf", (Workflow,), names | members)


def later(**fields):
    """Return a run that sets fields after the experience was made."""

    def run(self):
        row = a_row()
        for name, value in fields.items():
            setattr(row, name, value)
        return [row]

    return run


def the_same_twice(self):
    row = a_row()
    return [row, row]


def one_row_under_two_ids(self):
    row = a_row()
    return [row, replace(row)]


WRONG = {
    "one object twice in a list": (the_same_twice, "experiences 0 and 1 are the same object"),
    "one row under two ids": (one_row_under_two_ids, "experiences 0 and 1 are the same object"),
    "positive log-probabilities": (
        lambda self: [a_row(logprobs=[-0.5, 0.7])],
        "logprobs contains 0.7, but log-probabilities are at most 0",
    ),
    "a log-probability of NaN": (
        lambda self: [a_row(logprobs=[-0.5, math.nan])],
        "logprobs is partly NaN or infinite",
    ),
    "an infinite log-probability": (
        lambda self: [a_row(logprobs=[-math.inf, -0.5])],
        "logprobs is partly NaN or infinite",
    ),
    "a token reward of NaN": (
        lambda self: [a_row(token_level_reward=[0.0, math.nan])],
        "token_level_reward is partly NaN or infinite",
    ),
    "a teacher's log-probability of NaN": (
        lambda self: [a_row(teacher_logprobs=[0.0, math.nan])],
        "teacher_logprobs is partly NaN or infinite",
    ),
    "a prompt of no tokens": (later(prompt_length=0), "prompt_length is 0"),
    "a prompt of all tokens": (
        lambda self: [a_row(prompt_length=4, logprobs=None)],
        "prompt_length is 4, the number of all tokens",
    ),
    "more tokens than the context": (
        lambda self: [a_row(tokens=[1] * 20_000, logprobs=None)],
        "has 20,000 tokens, more than model.max_model_len 16,384",
    ),
    "a pair with an answer longer than the context": (
        lambda self: [a_row(logprobs=None, chosen=[1], rejected=[1] * 20_000)],
        "has 20,002 tokens, more than model.max_model_len 16,384",
    ),
    "a pair with a token that is none": (
        lambda self: [a_row(logprobs=None, chosen=[1], rejected=[-1])],
        "holds the token -1",
    ),
    "a prompt of half a token": (
        later(prompt_length=2.0),
        "prompt_length is 2.0, a float; it must be the whole number of prompt tokens",
    ),
    "token ids that are floats": (
        lambda self: [a_row(tokens=torch.tensor([1.0, 2.0, 3.7, 4.0]))],
        "tokens holds torch.float32 numbers; token ids are whole numbers",
    ),
    "token ids that became floats": (
        later(tokens=torch.tensor([1.0, 2.0, 3.7, 4.0])),
        "tokens holds torch.float32 numbers",
    ),
    "token ids with a batch dimension": (
        later(tokens=torch.tensor([[1, 2, 3, 4]])),
        "tokens has the shape [1, 4]; it must be one row of token ids",
    ),
    "padding among the tokens": (
        lambda self: [a_row(tokens=[1, 2, 3, -100])],
        "holds the token -100",
    ),
    "a mask of another length": (
        later(action_mask=torch.ones(4, dtype=torch.bool)),
        "action_mask has 4 entries, but the response has 2 tokens",
    ),
    "log-probabilities in a column": (
        later(logprobs=torch.zeros(2, 1)),
        "logprobs has the shape [2, 1]",
    ),
    "token rewards of the whole length": (
        later(token_level_reward=torch.zeros(4)),
        "token_level_reward has 4 entries",
    ),
    "a text as reward": (lambda self: [a_row(reward="1.0")], "reward is '1.0', which is no number"),
    "a reward of many numbers": (
        lambda self: [a_row(reward=torch.tensor([0.0, 1.0]))],
        "reward is tensor([0., 1.]), which is no number",
    ),
    "a reward of NaN": (lambda self: [a_row(reward=math.nan)], "reward is nan"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_run_that_would_corrupt_training_fails_with_its_name_and_place(world, name):
    run, words = WRONG[name]
    made = world(a_task(workflow=a_workflow(run)), max_failed_ratio=1.0)

    (failure,) = made.step().failures

    assert words in failure.message
    assert failure.outcome is Outcome.WORKFLOW_ERROR
    assert (failure.workflow, failure.task_id, failure.run) == (
        "my_workflows:Wf",
        "1/0 (no dataset)",
        0,
    )
    assert made.sink.batches in ([], [[]])


def test_one_object_for_all_runs_of_a_group_is_refused(world):
    def run(self):
        return [a_row()] * self.repeat_times

    task = a_task(workflow=a_workflow(run, can_repeat=True), repeat_times=4)
    made = world(task, max_failed_ratio=1.0)

    (failure,) = made.step().failures

    assert "experiences 0 and 1 are the same object. Return a separate experience" in (
        failure.message
    )


def test_an_object_that_an_earlier_call_returned_is_refused(world):
    kept = a_row()
    task = a_task(workflow=a_workflow(lambda self: [kept]), repeat_times=3)
    made = world(task, max_failed_ratio=1.0, runner_per_model=1)

    failures = made.step().failures

    assert len(failures) == 2
    assert (
        "experience 0 is the same object that an earlier call returned, for rollout 1/0/0"
        in failures[0].message
    )


def test_rounding_above_zero_is_no_positive_log_probability(world):
    made = world(a_task(workflow=a_workflow(lambda self: [a_row(logprobs=[0.0, 5e-4])])))

    assert made.step().failures == ()


def test_two_experiences_of_a_list_do_not_share_what_may_change(world):
    def run(self):
        mask = torch.ones(2, dtype=torch.bool)
        return [a_row(action_mask=mask), a_row(tokens=[1, 2, 7, 8], action_mask=mask)]

    made = world(a_task(workflow=a_workflow(run)))
    made.step()
    first, second = made.sink.last

    first.action_mask.zero_()

    assert second.action_mask.tolist() == [True, True]
