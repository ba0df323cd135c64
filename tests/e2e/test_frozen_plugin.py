"""A plugin of plugin API 1 runs as it is, with this core and every later one, or is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trinity
from trinity.common.config import load_config
from trinity.errors import CheckpointError
from trinity.extend import PLUGIN_API
from trinity.runtime.loop import Interrupted, Loop
from trinity.runtime.record.result import RunStatus
from trinity_testing.fixtures import throwaway_plugin

__all__ = ["throwaway_plugin"]

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parent / "frozen_plugin"


@pytest.fixture
def frozen(throwaway_plugin):
    return throwaway_plugin("frozen", files("frozen_plugin", "frozen_engine", "frozen_parts"))


def files(*names):
    return {f"{name}.py": (SOURCE / f"{name}.py").read_text() for name in names}


@pytest.fixture
def config(config_dict, taskset):
    taskset["default_workflow_type"] = "frozen_workflow"
    del taskset["default_reward_fn_type"]
    config_dict["monitor"] = {"monitor_type": "frozen_monitor"}
    config_dict["explorer"]["rollout_model"] = {"engine_type": "frozen_engine"}
    config_dict["buffer"]["trainer_input"] = {
        "experience_buffer": {"name": "kept", "storage_type": "frozen_storage"}
    }
    config_dict["data_processor"] = {
        "experience_pipeline": {"operators": [{"name": "frozen_operator"}]}
    }
    return config_dict


def test_it_is_loaded(frozen):
    (record,) = [record for record in frozen.records if record.name == "frozen"]

    assert (record.state, record.api, PLUGIN_API) == ("ok", "1", 1)


@pytest.mark.usefixtures("frozen")
def test_its_parts_run(config, write_yaml, run_dir) -> None:
    result = trinity.run(load_config(write_yaml(config)), local=True)

    assert result.status is RunStatus.FINISHED
    lines = (run_dir / "monitor" / "frozen-trainer.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    rows = (run_dir / "monitor" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["experience_pipeline/frozen_count"] == 16.0


@pytest.fixture
def stop_after_exploring(monkeypatch):
    """Interrupt after the first explore step, before anything of it is trained."""

    def stop(self):
        self._save()
        raise Interrupted

    monkeypatch.setattr(Loop, "_stop_if_asked", stop)
    return monkeypatch.undo


@pytest.mark.usefixtures("frozen")
@pytest.mark.acceptance
@pytest.mark.parametrize("storage", ["frozen_storage", "frozen_sieve"])
def test_what_waits_in_a_storage_is_kept_or_a_resume_is_refused(
    storage, config, write_yaml, stop_after_exploring, golden, capsys
) -> None:
    config["buffer"]["trainer_input"]["experience_buffer"]["storage_type"] = storage
    path = write_yaml(config)
    stopped = trinity.run(load_config(path), local=True)
    said = " ".join(capsys.readouterr().out.split())
    stop_after_exploring()

    assert stopped.status is RunStatus.INTERRUPTED
    assert ("storage frozen_sieve provides neither 'waiting'" in said) is (
        storage == "frozen_sieve"
    )
    if storage == "frozen_storage":
        trinity.run(load_config(path), local=True)
        assert json.loads((stopped.directory / "run.json").read_text())["trained_experiences"] == 32
        return
    with pytest.raises(CheckpointError) as caught:
        trinity.run(load_config(path), local=True)
    golden(str(caught.value), "storage_kept_nothing")


BASES = {
    "rollout_engine": ("words_engine", "RolloutEngine"),
    "trainer": ("words_trainer", "Trainer"),
    "sync_method": ("words_sync", "SyncMethod"),
    "storage": ("words_storage", "Storage"),
}


@pytest.mark.acceptance
def test_parts_that_say_by_words_what_they_can_do_train_and_are_told_of_their_base_classes(
    throwaway_plugin, config_dict, write_yaml, run_dir, capsys
) -> None:
    throwaway_plugin("words", files("frozen_words_plugin", "frozen_words"))
    config_dict["monitor"] = {"monitor_type": "words_monitor", "sample_interval": 1}
    config_dict["explorer"]["rollout_model"] = {"engine_type": "words_engine"}
    config_dict["trainer"] = {"trainer_type": "words_trainer"}
    config_dict["synchronizer"] = {"sync_method": "words_sync"}
    config_dict["buffer"]["trainer_input"] = {
        "experience_buffer": {"name": "kept", "storage_type": "words_storage"}
    }

    result = trinity.run(load_config(write_yaml(config_dict)), local=True)

    said = " ".join(capsys.readouterr().out.split())
    assert result.status is RunStatus.FINISHED
    for kind, (name, base) in BASES.items():
        cls = f"trinity.common.ports.{base}"
        assert f"{kind} {name}: " in said
        assert f"does not derive from {cls}, so it has the optional methods that its" in said
    rows = (run_dir / "monitor" / "trainer.csv").read_text().splitlines()
    assert [row for row in rows if "samples" in row] == ["1,samples,8", "2,samples,8"]
    rows = (run_dir / "monitor" / "explorer.csv").read_text().splitlines()
    assert all(float(row.split(",")[2]) > 0 for row in rows if "time/engine_s" in row)
