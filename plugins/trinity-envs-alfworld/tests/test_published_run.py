"""The published file of the step-wise guide plays real games, with only paths and sizes changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trinity
from trinity.common.config import load_config
from trinity.runtime.record.result import RunStatus
from trinity_testing.tiny import make_tiny_model

PUBLISHED = Path(__file__).parents[3] / "examples/grpo_alfworld_general_multi_step/alfworld.yaml"
SIZES = [
    "buffer.batch_size=1",
    "buffer.total_epochs=2",
    "buffer.train_batch_size=4",
    "buffer.explorer_input.taskset.workflow_args.max_env_steps=2",
    "algorithm.repeat_times=2",
    "model.max_model_len=1024",
    "model.max_response_tokens=8",
    "trainer.save_interval=4",
]


@pytest.mark.slow
def test_the_published_file_plays_trains_and_accounts_for_each_step(
    data, tmp_path, monkeypatch
) -> None:
    games = sorted((data / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    rows = [json.dumps({"game_file": str(game.relative_to(data))}) for game in games]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    paths = [f"buffer.explorer_input.taskset.path={tmp_path / 'train.jsonl'}"]
    paths += [f"model.model_path={make_tiny_model(tmp_path / 'model')}"]
    paths += [f"checkpoint_root_dir={tmp_path}"]

    result = trinity.run(load_config(PUBLISHED, overrides=[*paths, *SIZES]), local=True)

    (stage,) = result.stages
    assert (result.status, stage.explore_steps) == (RunStatus.FINISHED, 4)
    # two games, twice, two plays of two steps each: the model knows no command that ends a game
    lines = (result.directory / "history.jsonl").read_text().splitlines()
    eids = [eid for line in lines for eid in json.loads(line)["eids"]]
    assert len(eids) == len(set(eids)) == 4 * 2 * 2
    assert (stage.buffer["written"], stage.buffer["reused"]) == (16, 0)


@pytest.mark.slow
def test_a_bad_game_alone_in_the_last_batch_is_tried_once_and_the_others_are_trained_on(
    data, tmp_path, monkeypatch, capsys
) -> None:
    games = sorted((data / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    (tmp_path / "bad.tw-pddl").write_text("no game")
    names = [*(str(game) for game in games), str(tmp_path / "bad.tw-pddl")]
    rows = [json.dumps({"game_file": name}) for name in names]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    given = [*SIZES, "buffer.batch_size=2", "buffer.total_epochs=1"]
    given += [f"buffer.explorer_input.taskset.path={tmp_path / 'train.jsonl'}"]
    given += [f"model.model_path={make_tiny_model(tmp_path / 'model')}"]
    given += [f"checkpoint_root_dir={tmp_path}"]

    result = trinity.run(load_config(PUBLISHED, overrides=given), local=True)

    assert result.status is RunStatus.FINISHED
    told = capsys.readouterr().out
    assert told.count("step 2: 2 rollouts failed, not trained on") == 1
    assert told.count("run 0, attempt 1") == 1
    assert told.count("bad.tw-pddl cannot be played: it is no game of ALFWorld") == 1
    lines = (result.directory / "history.jsonl").read_text().splitlines()
    assert sum(len(json.loads(line)["eids"]) for line in lines) == 2 * 2 * 2
