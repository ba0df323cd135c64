"""A run whose sides overlap over Ray goes on from a checkpoint of its middle, and loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trinity
from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN, PolicyLossFn
from trinity.common.config import load_config
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.errors import TrinityError
from trinity.monitor.jsonl import read_metrics
from trinity_testing.history import read_history

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]


@REWARD_FUNCTIONS.register_module("share_of_letters")
class ShareOfLetters(RewardFn):
    def __call__(self, response=None, **kwargs):
        return {"letters": sum(map(str.isalpha, response or "")) / 8}


@POLICY_LOSS_FN.register_module("fails_once")
class FailsOnce(PolicyLossFn):
    """The plain policy gradient, which fails in one micro-batch of the first run.

    Args:
        at: the micro-batch, from 1.
        marker: a file that says that it has failed.
    """

    def __init__(self, at: int = 4, marker: str = ""):
        self.at, self.marker, self.num_calls = at, Path(marker), 0

    def __call__(self, logprob, *, advantages, action_mask, **kwargs):
        self.num_calls += 1
        if self.num_calls == self.at and not self.marker.exists():
            self.marker.touch()
            raise ValueError("failed once")
        return -(logprob * advantages * action_mask).sum() / action_mask.sum(), {}


def numbers_of(directory):
    rows = [
        {name: value for name, value in row.items() if "time/" not in name}
        for row in read_metrics(directory / "monitor")
    ]
    return sorted(rows, key=lambda row: (row["role"], row["step"]))


@pytest.fixture
def run(config_dict, taskset, write_yaml, ray_cluster, tmp_path):
    """Return a function that runs six steps, of which the first run breaks off in the fourth."""
    taskset["default_reward_fn_type"] = "share_of_letters"
    config_dict["buffer"]["total_steps"] = 6
    config_dict["trainer"] = {"save_interval": 1}
    config_dict["algorithm"] |= {
        "policy_loss_fn": "fails_once",
        "policy_loss_fn_args": {"marker": str(tmp_path / "failed")},
    }

    def start(name, *, local=False):
        return trinity.run(load_config(write_yaml(config_dict | {"name": name})), local=local)

    return start


def test_steps_that_had_not_ended_are_explored_again_with_the_weights_they_began_with(
    run, config_dict, tmp_path
) -> None:
    config_dict["synchronizer"] = {"sync_interval": 2, "sync_offset": 1}
    with pytest.raises(TrinityError, match="failed once"):
        run("broken")
    checkpoint = Path(config_dict["checkpoint_root_dir"]) / "e2e/broken/global_step_3"
    state = json.loads((checkpoint / "state.json").read_text())
    went_on, whole = run("broken"), run("whole", local=True)

    assert (tmp_path / "failed").exists()
    assert state["engines"] == {"version": 2}
    assert went_on.directory == checkpoint.parent
    assert read_history(went_on.directory) == read_history(whole.directory)
    assert len(numbers_of(whole.directory)) == len(numbers_of(went_on.directory)) > 12
    for one, other in zip(numbers_of(whole.directory), numbers_of(went_on.directory), strict=True):
        assert other == pytest.approx(one, abs=1e-5), (one["role"], one["step"])


@pytest.mark.parametrize("style", ["trainer_driven", "explorer_driven"])
def test_a_run_that_broke_off_ahead_goes_on_with_the_batches_of_one_that_took_turns(
    run, config_dict, taskset, style
) -> None:
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [dict(taskset, name="held_out")]
    config_dict["explorer"]["eval_interval"] = 3
    config_dict["synchronizer"] = {"sync_style": style}
    with pytest.raises(TrinityError, match="failed once"):
        run("broken")
    went_on, whole = run("broken"), run("whole", local=True)

    rows = read_metrics(went_on.directory / "monitor")
    trained = [row for row in rows if row["role"] == "trainer"]
    ages = [row["step"] - 1 - row["sample/model_version/min"] for row in trained]
    assert ages == [row["age/max"] for row in trained]
    assert read_history(went_on.directory) == read_history(whole.directory)
    assert [sum(row["role"] == role for row in rows) for role in ("explorer", "trainer")] == [8, 6]
    assert max(ages) <= 1  # two steps may have begun, and no question or sync is left out
    assert went_on.stages[0].evaluation.keys() == whole.stages[0].evaluation.keys()
