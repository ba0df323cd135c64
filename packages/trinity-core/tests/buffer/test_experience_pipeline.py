"""What happens between the explorer and the buffer."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from trinity.algorithm import AdvantageFn
from trinity.buffer.operators import ExperienceOperator, InvalidRewardFilter
from trinity.buffer.pipeline import ExperiencePipeline, without_feedback
from trinity.buffer.queue import QueueStorage
from trinity.common.config import ExperienceBufferConfig
from trinity.common.ports import RowValues
from trinity.common.workflows.recorded_env import ENVIRONMENT
from trinity.errors import BufferClosedError, PluginError
from trinity_algorithms.difficulty import PassRateCalculator
from trinity_algorithms.replay.priority import LinearDecay
from trinity_testing.builders import a_group, an_experience


class LessTheMean(AdvantageFn):
    computed_on = "group"

    def __call__(self, exps, **kwargs):
        advantages = torch.zeros_like(exps["token_level_rewards"])
        for rows in exps.groups().values():
            rewards = exps["rewards"][rows]
            advantages[rows] = (rewards - rewards.mean())[:, None] * exps["action_mask"][rows]
        exps["advantages"] = exps["returns"] = advantages
        mean = float(exps["rewards"].mean())
        return exps, {"group_advantages/reward_mean/mean": mean, "my_metric": 3}


class DropsZero(ExperienceOperator):
    def __init__(self):
        self.num_closed = 0

    def process(self, exps):
        return [e for e in exps if e.reward], {"dropped": 1.0}

    def close(self):
        self.num_closed += 1


def a_sink() -> QueueStorage:
    return QueueStorage(ExperienceBufferConfig())


def test_what_an_environment_answered_goes_to_the_trainer_and_not_to_what_is_kept_of_all():
    sink, kept = a_sink(), a_sink()
    pipeline = ExperiencePipeline([], None, sink, input_sink=kept)
    rows = a_group((1.0, 0.0))
    rows[-1].info |= {ENVIRONMENT: "long", "mine": 1}

    pipeline.process(rows)

    assert [one.info.get(ENVIRONMENT) for one in sink.read(2, timeout_s=1)] == [None, "long"]
    _, last = kept.read(2, timeout_s=1)
    assert ENVIRONMENT not in last.info
    assert last.info["mine"] == 1
    assert last.tokens.tolist() == rows[-1].tokens.tolist()


class FindsNone(ExperienceOperator):
    def process(self, exps):
        return [next(one for one in exps if one.reward > 2)], {}


class NoAdvantage(LessTheMean):
    def __call__(self, exps, **kwargs):
        return next(iter(())), {}


@pytest.mark.parametrize(
    ("operators", "advantage_fn"), [([FindsNone()], None), ([], NoAdvantage())]
)
def test_a_stop_iteration_that_a_plugin_lets_out_is_an_error_with_its_place(
    operators, advantage_fn
):
    pipeline = ExperiencePipeline(operators, advantage_fn, a_sink())

    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        pipeline.process(a_group((1.0, 0.0)))

    assert "next(" in str(caught.traceback[-1].statement)


def test_operators_work_in_order_before_advantages_and_the_write():
    sink = a_sink()
    pipeline = ExperiencePipeline([InvalidRewardFilter(), DropsZero()], LessTheMean(), sink)

    metrics = pipeline.process(a_group((1.0, 0.0, math.nan, 3.0, None)))

    written = sink.read(2, timeout_s=1)
    # left: 1 and 3, whose mean is 2
    assert [e.advantages.tolist()[0] for e in written] == [-1.0, 1.0]
    assert [len(e.advantages) for e in written] == [e.response_length for e in written]
    assert metrics["experience_pipeline/filtered_count"] == 2.0  # NaN and None
    assert metrics["experience_pipeline/dropped"] == 1.0
    assert metrics["experience_pipeline/num_read"] == 5.0
    assert metrics["experience_pipeline/num_written"] == 2.0
    assert metrics["group_advantages/reward_mean/mean"] == 2.0
    assert metrics["advantage/my_metric"] == 3.0
    assert metrics["time/advantage_s"] >= 0.0


def test_without_an_advantage_function_experiences_are_written_as_they_are():
    sink = a_sink()

    ExperiencePipeline([], None, sink).process(a_group((1.0, 0.0)))

    assert [e.advantages for e in sink.read(2, timeout_s=1)] == [None, None]


def test_what_the_workflows_returned_can_be_kept_too():
    sink, raw = a_sink(), a_sink()

    ExperiencePipeline([DropsZero()], None, sink, input_sink=raw).process(a_group((1.0, 0.0)))

    assert (sink.available(), raw.available()) == (1, 2)


def test_nothing_left_is_no_error():
    metrics = ExperiencePipeline([DropsZero()], LessTheMean(), a_sink()).process(a_group((0.0,)))

    assert metrics["experience_pipeline/num_written"] == 0.0


def test_operators_are_closed_once():
    operator = DropsZero()
    pipeline = ExperiencePipeline([operator], None, a_sink())
    pipeline.close()
    pipeline.close()

    assert operator.num_closed == 1


def test_infinite_rewards_are_invalid():
    kept, _ = InvalidRewardFilter().process([an_experience(reward=math.inf), an_experience()])

    assert [e.reward for e in kept] == [0.0]


@pytest.mark.parametrize(
    ("version", "use_count", "priority"),
    [(5, 0, 5.0), (5, 2, 1.0), (3, 1, 1.0)],  # version - 2 x uses
)
def test_linear_decay_prefers_new_and_unused(version, use_count, priority):
    experience = an_experience(info={"model_version": version, "use_count": use_count})

    assert LinearDecay(decay=2.0)([experience]) == (priority, True)


def test_each_stored_experience_says_which_plugins_made_it():
    sink = a_sink()
    pipeline = ExperiencePipeline([], None, sink, plugin_digest="c51a408e")

    pipeline.process([an_experience(reward=1.0)])

    assert sink.read(1, timeout_s=1)[0].info["plugins"] == "c51a408e"


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (None, "None"),
        ([], "a list"),
        (a_group((1.0, 0.0)), "a list"),
        (([], None), "a list and a NoneType"),
    ],
)
def test_an_operator_that_returns_something_else_is_named(returned, named):
    class Forgets(ExperienceOperator):
        def process(self, exps):
            return returned

    pipeline = ExperiencePipeline([Forgets()], None, a_sink())

    with pytest.raises(PluginError, match=rf"Forgets \(your class .*\) returned {named}\. Return"):
        pipeline.process(a_group((1.0, 0.0)))


@pytest.mark.parametrize(
    ("twice", "named"),
    [
        (lambda exps: [exps[0], exps[1], exps[0]], "the experience 0/0/0/0 twice"),
        (lambda exps: [exps[0], "text"], "a str among the experiences"),
    ],
)
def test_an_operator_that_would_have_a_row_trained_twice_is_named(twice, named):
    class Doubles(ExperienceOperator):
        def process(self, exps):
            return twice(exps), {}

    sink = a_sink()

    with pytest.raises(PluginError, match=rf"operator Doubles .* returned {named}"):
        ExperiencePipeline([Doubles()], None, sink).process(a_group((1.0, 0.0)))
    assert sink.available() == 0


def test_the_two_things_an_operator_returns_may_stand_in_a_list():
    class Lists(ExperienceOperator):
        def process(self, exps):
            return [exps[:1], {"kept": 1.0}]

    metrics = ExperiencePipeline([Lists()], None, a_sink()).process(a_group((1.0, 0.0)))

    assert metrics["experience_pipeline/kept"] == 1.0


class TellsTheSelector(ExperienceOperator):
    def process(self, exps):
        return exps, {"selector_metric": {0: {"indices": [4], "values": [0.5]}}, "seen": 1.0}


def test_what_an_operator_tells_the_selectors_is_no_metric_and_holds_for_one_call(caplog):
    pipeline = ExperiencePipeline([TellsTheSelector(), PassRateCalculator()], None, a_sink())
    index = {"task_index": {"taskset_id": 1, "index": 2}}

    metrics = pipeline.process([an_experience(reward=1.0, info=index)])

    assert pipeline.feedback() == {
        "0": RowValues(indices=[4], values=[0.5]),
        "1": RowValues(indices=[2], values=[1.0]),
    }
    assert metrics["experience_pipeline/seen"] == 1.0
    assert not [name for name in metrics if "selector_metric" in name]
    assert not caplog.records
    assert ExperiencePipeline([], None, a_sink()).feedback() == {}


@pytest.mark.parametrize("values", [[0.5, 1.0], [float("nan")], ["half"], None])
def test_what_no_selector_could_take_stays_a_metric(values):
    entry = {"indices": [4], "values": values}

    assert without_feedback({"selector_metric": {"0": entry}}) == (
        {"selector_metric": {"0": entry}},
        {},
    )


class NotesTheTaskset(ExperienceOperator):
    def process(self, exps):
        by_task = {"0": {"index": [3, 4], "reward": torch.tensor(0.5)}}
        return exps, {"selector_metric": by_task, "is_sure": True}


def test_an_operators_metric_that_is_no_number_is_told_once_and_its_numbers_are_kept(caplog):
    pipeline = ExperiencePipeline([NotesTheTaskset()], None, a_sink())

    both = [pipeline.process([an_experience(reward=1.0)]) for _ in range(2)]

    for metrics in both:
        own = {name: value for name, value in metrics.items() if "num_" not in name}
        del own["time/write_s"]
        assert own == {
            "experience_pipeline/selector_metric/0/reward": 0.5,
            "experience_pipeline/is_sure": 1.0,
        }
    assert [record.getMessage() for record in caplog.records] == [
        "NotesTheTaskset.process() gave the metric selector_metric/0/index, which is not a number "
        "and is ignored: [3, 4]. Return numbers, or dicts of numbers, as metrics."
    ]


class Slow(ExperienceOperator):
    """Takes its time."""

    def __init__(self):
        self.began, self.may_end = threading.Event(), threading.Event()
        self.is_closed = False

    def process(self, exps):
        self.began.set()
        self.may_end.wait(10)
        assert not self.is_closed
        return exps, {}

    def close(self):
        self.is_closed = True


def test_what_is_on_its_way_when_the_explorer_is_closed_is_not_written(monkeypatch):
    monkeypatch.setattr("trinity.buffer.pipeline.CLOSE_S", 0.01)
    sink, slow, failed = a_sink(), Slow(), []
    pipeline = ExperiencePipeline([slow], None, sink)

    def process():
        try:
            pipeline.process(a_group((1.0,)))
        except BufferClosedError as error:
            failed.append(error)

    thread = threading.Thread(target=process)
    thread.start()
    slow.began.wait(10)
    pipeline.close()
    was_over = pipeline.is_over(timeout_s=0.01)
    slow.may_end.set()

    assert (was_over, pipeline.is_over(timeout_s=10)) == (False, True)
    assert slow.is_closed  # by the call that used it
    assert len(failed) == 1
    assert sink.available() == 0
    with pytest.raises(BufferClosedError, match="is over"):
        pipeline.process(a_group((1.0,)))
    thread.join(10)
