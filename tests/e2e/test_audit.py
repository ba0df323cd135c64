"""A run that has wrong parts finds them, names them and their plugin, and ends where told to."""

from __future__ import annotations

from pathlib import Path

import pytest
import trinity
from trinity.common.config import Config, load_config
from trinity.errors import TrinityError
from trinity_testing.fixtures import throwaway_plugin  # noqa: F401 -- a fixture

pytestmark = pytest.mark.slow

WRONG = Path(__file__).parents[2] / "benchmarks" / "wrong_run_parts"
PARTS, SECOND = WRONG / "parts", WRONG / "second"


@pytest.fixture
def wrong(throwaway_plugin, config_dict, taskset):  # noqa: F811
    """Install the plugin full of wrong parts; return a configuration that can name them."""
    names = ["wrong_run_plugin.py", *sorted(f.name for f in PARTS.glob("wrong_run_[!p]*.py"))]
    throwaway_plugin("wrong-run", {name: (PARTS / name).read_text() for name in names})
    taskset["default_reward_fn_type"] = "varied"
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2}
    config_dict["buffer"]["total_epochs"] = 2
    return config_dict


@pytest.fixture
def of_the_second_set(throwaway_plugin, config_dict):  # noqa: F811
    """Install the second set of wrong parts; return a configuration that can name them."""
    names = ["wrong_again_plugin.py", *sorted(f.name for f in SECOND.glob("wrong_again_[!p]*.py"))]
    throwaway_plugin("wrong-again", {name: (SECOND / name).read_text() for name in names})
    advisors = ("empties_metrics", "raises", "always_warns")  # each installed one is asked
    return config_dict | {"advisors": dict.fromkeys(advisors, "off")}


def test_one_run_finds_a_wrong_part_by_each_check_and_names_it(
    wrong, write_yaml, status_of, capsys
) -> None:
    wrong["algorithm"]["advantage_fn"] = "halves_rewards"
    wrong["buffer"]["trainer_input"] = {
        "experience_buffer": {"name": "rows", "storage_type": "drops_a_group"}
    }
    wrong["explorer"]["rollout_model"]["engine_type"] = "tells_too_much"
    wrong["synchronizer"] = {"sync_method": "swaps_two_tensors"}
    wrong["monitor"]["monitor_type"] = "drops_every_third"

    trinity.run(load_config(write_yaml(wrong)), local=True)

    found = {one["check"]: one["parts"] for one in status_of()["audit"]}
    own = "(trinity-wrong-run 1.0)"
    assert found == {
        "inputs": f"advantage_fn halves_rewards {own}",
        "logprobs": f"rollout_engine tells_too_much {own}, sync_method swaps_two_tensors {own}, "
        f"advantage_fn halves_rewards {own}, storage drops_a_group {own}",
        "metrics": f"monitor drops_every_third {own}",
        "rows": f"storage drops_a_group {own}",
        "weights": f"sync_method swaps_two_tensors {own}, rollout_engine tells_too_much {own}",
    }
    assert "audit (rows): it lost" in " ".join(capsys.readouterr().out.split())


def test_rows_that_name_weights_newer_than_the_trainers_are_found_and_trained_rows_tell_who(
    of_the_second_set, write_yaml, status_of
) -> None:
    operators = [{"name": "makes_them_young"}]
    of_the_second_set["data_processor"] = {"experience_pipeline": {"operators": operators}}

    trinity.run(load_config(write_yaml(of_the_second_set)), local=True)

    (found,) = status_of()["audit"]
    assert found["check"] == "versions"
    assert found["parts"] == "experience_operator makes_them_young (trinity-wrong-again 1.0)"
    assert found["message"].startswith("experience 1/")
    assert found["message"].endswith(
        "says that policy version 3 sampled it, and the engines have version 0"
    )
    assert status_of()["status"] == "finished"


def test_with_stop_rows_of_an_engine_that_names_old_weights_are_not_trained(
    of_the_second_set, write_yaml, status_of
) -> None:
    of_the_second_set |= {"audit": "stop"}
    of_the_second_set["explorer"]["rollout_model"] = {"engine_type": "says_version_zero"}

    with pytest.raises(
        TrinityError, match=r"audit \(versions\): experience 2/.* version 0 sampled"
    ):
        trinity.run(load_config(write_yaml(of_the_second_set)), local=True)

    assert status_of()["train_steps"] == 1
    assert "rollout_engine says_version_zero (trinity-wrong-again 1.0)" in status_of()["error"]


def test_with_stop_the_run_ends_with_what_was_found(wrong, write_yaml, status_of) -> None:
    wrong |= {"audit": "stop", "trainer": {"trainer_type": "lowers_rewards"}}

    with pytest.raises(TrinityError, match=r"audit \(inputs\): the reward of experience .* in the"):
        trinity.run(load_config(write_yaml(wrong)), local=True)

    assert status_of()["status"] == "failed"
    assert "trainer lowers_rewards (trinity-wrong-run 1.0)" in status_of()["error"]


def test_a_bare_off_in_yaml_turns_the_audit_off() -> None:
    assert Config.model_validate({"audit": False}).audit == "off"
