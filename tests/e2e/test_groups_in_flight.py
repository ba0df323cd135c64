"""With groups in flight each group is trained once, none too old, whatever breaks the run off."""

from __future__ import annotations

from pathlib import Path

import pytest
import trinity
from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN, PolicyLossFn
from trinity.common.config import load_config
from trinity.errors import CheckpointError, TrinityError
from trinity.monitor.jsonl import read_metrics
from trinity_testing.history import read_history


@POLICY_LOSS_FN.register_module("fails_in_flight")
class FailsInFlight(PolicyLossFn):
    """The plain policy gradient, which fails in one optimizer step of the first run.

    Args:
        at: the step, from 1.
        marker: a file that says that it has failed.
    """

    def __init__(self, at: int = 3, marker: str = ""):
        self.at, self.marker, self.num_calls = at, Path(marker), 0

    def __call__(self, logprob, *, advantages, action_mask, **kwargs):
        self.num_calls += 1
        if self.num_calls == self.at and not self.marker.exists():
            self.marker.touch()
            raise ValueError("failed once")
        return -(logprob * advantages * action_mask).sum() / action_mask.sum(), {}


@pytest.fixture(params=["sql", pytest.param("queue", marks=pytest.mark.acceptance)])
def run(request, config_dict, write_yaml, tmp_path):
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": {"storage_type": request.param}}
    config_dict["buffer"] |= {"batch_size": 2, "total_epochs": 3}  # 24 groups in 12 steps
    config_dict["synchronizer"] = {"sync_style": "fully_async"}
    config_dict["explorer"] |= {"max_inflight_batches": 3, "window": 0.5}
    config_dict["trainer"] = {"save_interval": 2}
    config_dict["algorithm"] |= {
        "policy_loss_fn": "fails_in_flight",
        "policy_loss_fn_args": {"marker": str(tmp_path / "failed")},
    }
    return lambda: trinity.run(load_config(write_yaml(config_dict)), local=True)


def test_a_run_that_failed_goes_on_and_trains_each_group_once(
    run, config_dict, run_dir, status_of
) -> None:
    with pytest.raises(TrinityError, match="failed once"):
        run()
    num_before = len(read_history(run_dir))
    config_dict["synchronizer"] = {"sync_style": "fixed"}
    with pytest.raises(CheckpointError, match="explored and not trained would be lost"):
        run()
    config_dict["synchronizer"] = {"sync_style": "fully_async"}
    config_dict["buffer"]["batch_size"] = 4
    with pytest.raises(CheckpointError, match=r"with buffer\.batch_size 2, and now it is 4"):
        run()
    config_dict["buffer"]["batch_size"] = 2
    result = run()

    history = read_history(run_dir)
    groups = [{eid.rsplit("/", 2)[0] for eid in step} for step in history]
    assert num_before == 2
    assert result.stages[0].train_steps == 12
    assert [len(step) for step in groups] == [2] * 12
    assert {name for step in groups for name in step} == {
        f"{batch}/{task}" for batch in range(1, 13) for task in range(2)
    }
    uids = [eid for step in history for eid in step]
    assert len(set(uids)) == len(uids) == 24 * 4
    rows = read_metrics(run_dir / "monitor")
    ages = [row["age/max"] for row in rows if row["role"] == "trainer"]
    assert len(ages) == 12
    assert max(ages) <= 3  # capacity 6, window 3, 2 a batch: (6 + 3 - 2) // 2
    assert status_of()["guarantee"] == "same ledger"


def test_a_run_whose_filter_lets_no_group_pass_ends_after_its_steps(
    config_dict, write_yaml, run_dir, status_of
) -> None:
    config_dict["buffer"] |= {"batch_size": 1, "total_steps": 2}  # and no last epoch
    config_dict["synchronizer"] = {"sync_style": "fully_async"}
    whatever = {"name": "reward_std_filter", "args": {"threshold": 100.0}}
    config_dict["data_processor"] = {"experience_pipeline": {"operators": [whatever]}}

    trinity.run(load_config(write_yaml(config_dict)), local=True)

    status = status_of()
    assert (status["status"], status["explore_steps"], status["train_steps"]) == ("finished", 0, 0)
    assert (
        "10 groups in a row have no experiences to train on"
        in (run_dir / "trinity.log").read_text()
    )
