"""What happens to experiences on their way to the buffer."""

from __future__ import annotations

import asyncio

import pytest
from trinity.buffer.operators import (
    EXPERIENCE_OPERATORS,
    DAPODynamicSampling,
    ExperienceOperatorV1,
    MaskResponseTruncated,
    RewardFilter,
    RewardStdFilter,
)
from trinity.buffer.pipeline import ExperiencePipeline
from trinity.buffer.queue import QueueStorage
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity_algorithms.difficulty import PassRateCalculator
from trinity_algorithms.reward_shaping import RewardShapingMapper
from trinity_testing.builders import an_experience


def a_row(reward, *, task=0, run=0, **fields):
    return Experience(
        tokens=[1, 2, 3], action_mask=[1, 1], reward=reward, eid=EID(0, task, run), **fields
    )


def a_task(number, *rewards):
    return [a_row(reward, task=number, run=run) for run, reward in enumerate(rewards)]


def tasks(rows):
    return sorted({row.eid.task for row in rows})


def test_tasks_that_all_runs_solve_or_none_are_left_out():
    rows = [*a_task(0, 1.0, 1.0), *a_task(1, 1.0, 0.0), *a_task(2, 0.0, -1.0), *a_task(3, 1.0)]
    kept, metrics = DAPODynamicSampling().process(rows)

    assert tasks(kept) == [1]
    assert metrics == {"filtered_count": 5.0, "dropped_all_correct": 2.0, "dropped_all_wrong": 2.0}


def test_the_accuracy_says_who_is_correct_before_the_reward_does():
    rows = [a_row(1.0, metrics={"accuracy": 0.0}), a_row(1.0, run=1, metrics={"accuracy": 1.0})]

    assert len(DAPODynamicSampling().process(rows)[0]) == 2
    assert DAPODynamicSampling(metric_key="other").process(rows)[0] == []


def test_a_task_of_equal_rewards_has_no_deviation():
    kept, metrics = RewardStdFilter().process([*a_task(0, *[0.1] * 7), *a_task(1, 0.0, 1.0)])

    assert tasks(kept) == [1]
    assert metrics["operator_filtered_count"] == 7.0
    assert metrics["origin_group_advantages/reward_std/min"] == 0.0


def test_a_missing_reward_does_not_pass_the_filter():
    kept, _ = RewardFilter(0.5).process([a_row(None), a_row(0.5), a_row(0.4)])

    assert [row.reward for row in kept] == [0.5]


def test_a_cut_response_teaches_nothing_and_keeps_its_reward():
    (row,), metrics = MaskResponseTruncated().process(
        [a_row(1.0, truncate_status="response_truncated")]
    )

    assert (row.action_mask.tolist(), row.reward) == ([False, False], 1.0)
    assert metrics == {"masked_truncated_count": 1.0}


@pytest.mark.parametrize(
    ("operation", "reward"), [("ADD", 7.0), ("SUB", -1.0), ("mul", 12.0), ("DIV", 0.75)]
)
def test_a_reward_is_shaped_by_what_the_workflow_noted(operation, reward):
    rule = {"stats_key": "bonus", "op_type": operation, "weight": 2.0}
    (row,), _ = RewardShapingMapper([rule]).process([a_row(3.0, info={"bonus": 2.0})])

    assert row.reward == reward


def test_nothing_is_divided_by_0():
    rule = {"stats_key": "bonus", "op_type": "DIV"}
    (row,), metrics = RewardShapingMapper([rule]).process([a_row(3.0, info={"bonus": 0.0})])

    assert (row.reward, metrics["reward_diff/max"]) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"op_type": "ADD"}, "needs stats_key"), ({"stats_key": "q", "op_type": "POW"}, "op_type is")],
)
def test_a_rule_that_makes_no_sense_is_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        RewardShapingMapper([rule])


def test_pass_rates_stand_for_the_selector_among_the_metrics():
    rows = [
        a_row(reward, run=run, info={"task_index": {"taskset_id": 0, "index": index}})
        for run, (index, reward) in enumerate([(4, 1.0), (4, 0.0), (2, 1.0)])
    ]
    operator = PassRateCalculator()
    _, metrics = operator.process(rows)

    assert metrics["selector_metric"] == {"0": {"indices": [4, 2], "values": [0.5, 1.0]}}
    assert metrics["selection/valid_ratio"] == 0.5
    assert operator.process([])[1] == {}


def test_a_pass_rate_at_a_bound_is_outside():
    rows = [
        a_row(rate, run=run, info={"task_index": {"taskset_id": 0, "index": run}})
        for run, rate in enumerate([1 / 16, 15 / 16, 0.5, 0.0])
    ]
    _, metrics = PassRateCalculator().process(rows)

    assert metrics["selection/strict_valid_ratio"] == 0.25
    assert metrics["selection/<15_16_ratio"] == 0.75
    assert metrics["selection/>1_16_ratio"] == 0.5


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_task_with_a_reward_that_is_no_number_is_left_out(bad):
    kept, _ = RewardStdFilter().process([*a_task(0, bad, 1.0), *a_task(1, 0.0, 1.0)])

    assert tasks(kept) == [1]


class Awaits(ExperienceOperatorV1):
    """Drops the first; notes what is called, and in which loop."""

    def __init__(self):
        self.calls = []

    async def prepare(self):
        self.calls.append(("prepare", asyncio.get_running_loop()))

    async def process(self, exps):
        await asyncio.sleep(0)
        self.calls.append(("process", asyncio.get_running_loop()))
        return exps[1:], {"dropped": 1.0}

    async def close(self):
        self.calls.append(("close", asyncio.get_running_loop()))


def test_an_operator_may_await_and_stays_in_one_loop():
    sink, operator = QueueStorage(ExperienceBufferConfig()), Awaits()
    pipeline = ExperiencePipeline([operator], None, sink)

    metrics = pipeline.process([an_experience(), an_experience(reward=3.0)])
    pipeline.close()
    pipeline.close()

    assert [what for what, _ in operator.calls] == ["prepare", "process", "close"]
    assert len({id(loop) for _, loop in operator.calls}) == 1
    assert operator.auxiliary_models == {}
    assert metrics["experience_pipeline/dropped"] == 1.0
    assert metrics["experience_pipeline/num_written"] == 1.0


def test_an_operator_is_registered_by_a_decorator():
    EXPERIENCE_OPERATORS.register_module("awaits", Awaits)

    assert EXPERIENCE_OPERATORS.get("awaits") is Awaits
    assert EXPERIENCE_OPERATORS.get("reward_filter") is RewardFilter
