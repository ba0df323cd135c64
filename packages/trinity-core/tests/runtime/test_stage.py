"""A stage that may not start leaves the run directory as it was."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.sync_policy import policy_of
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.record.progress import Progress
from trinity.runtime.record.records import DamagedError
from trinity.runtime.record.result import RunStatus
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.rundir import RunDir
from trinity.runtime.record.samples import part_files
from trinity.runtime.restore import restore
from trinity.runtime.stage import _StageRun


@pytest.fixture
def rundir(tmp_path):
    for folder in ("samples", "monitor"):
        (tmp_path / folder).mkdir()
    (tmp_path / "samples" / "from-00000001.bin").write_bytes(b"what was trained")
    (tmp_path / "history.jsonl").write_text('{"step": 1, "eids": []}\n')
    (tmp_path / "monitor" / "metrics.jsonl").write_text('{"step": 1}\n')
    return RunDir(tmp_path)


def stage_run(rundir, *, config=None):
    config = config or Config(mode="train")
    return _StageRun(
        config,
        files=GrowingFiles(config, rundir=rundir),
        display=SimpleNamespace(say=lambda line: None),
        build=lambda: pytest.fail("it began"),
        before={},
        stage="",
    )


def test_a_start_without_the_beginning_is_refused_with_all_samples_there(rundir) -> None:
    with pytest.raises(DamagedError, match=r"beginning\.json is missing"):
        stage_run(rundir).run()

    assert [path.read_bytes() for path in part_files(rundir.path)] == [b"what was trained"]


def test_a_start_whose_files_are_damaged_is_refused_with_all_samples_there(rundir) -> None:
    metrics = {"size": 12, "digest": "another"}
    stage = stage_run(rundir)

    with pytest.raises(DamagedError, match=r"metrics\.jsonl is damaged"):
        stage._begin(
            None, {"files": {"monitor/metrics.jsonl": metrics}, "progress": {"trained": 0}}
        )

    assert [path.read_bytes() for path in part_files(rundir.path)] == [b"what was trained"]


@pytest.mark.parametrize(
    ("storage", "remedy"),
    [("sql", "set another explorer.name"), ("file", "what was written is cut")],
)
def test_an_explorer_whose_place_is_damaged_names_what_helps_with_its_storage(
    rundir, storage, remedy
) -> None:
    config = Config(mode="explore")
    section = ExperienceBufferConfig(storage_type=storage)
    config.buffer.trainer_input.experience_buffer = section
    (rundir.path / "explorer_state.json").write_text("{")

    with pytest.raises(DamagedError, match=remedy):
        stage_run(rundir, config=config).run()


def test_after_a_change_of_style_the_engines_have_the_weights_that_they_got_at_the_start(
    rundir,
) -> None:
    synced, stage = [], stage_run(rundir)
    progress = Progress(explore_steps=3, train_steps=3)  # as a trainer that decides left it
    policy = policy_of(Config())
    parts = SimpleNamespace(
        storage=None, explorer=None, strategy=None, groups=None, policy=policy,
        audit=SimpleNamespace(is_on=False),
        rollouts=RolloutBuffer(policy, batch=1),
        trainer=SimpleNamespace(snapshot=lambda copy: 3),
        sync=SimpleNamespace(sync=lambda snapshot: synced.append(snapshot())),
    )  # fmt: skip
    state = {"storage": {}, "explorer": {}, "progress": asdict(progress)}

    restore(
        parts,
        config=stage._config,
        directory=rundir.path,
        checkpoint=None,
        state=state,
        progress=progress,
    )

    assert synced == [3]
    assert progress.weights_version == parts.rollouts.version == 3


@pytest.mark.parametrize(
    ("status", "waits"), [(RunStatus.FAILED, True), (RunStatus.INTERRUPTED, False)]
)
def test_a_stage_that_ends_leaves_no_step_that_writes(rundir, status, waits) -> None:
    ended, stage = [], stage_run(rundir)
    stage._display = SimpleNamespace(ended=lambda: None)
    stage.record.parts = SimpleNamespace(
        close=lambda: ended.append("closed"), leave_quiet=lambda *, waits: ended.append(waits)
    )
    stage.record.status = status

    stage.close()

    assert ended == ["closed", waits]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (["a 1.0"], ["a 2.0"], "then a 1.0; now a 2.0"),
        (["a 1.0"], [], "then a 1.0; now without"),
        ([], ["a 1.0", "/plugins/b.py"], "then without; now /plugins/b.py, a 1.0"),
        (["a 1.0"], ["a 1.0"], "the same versions of other sources"),
    ],
)
def test_a_resume_says_which_plugins_came_and_went(rundir, monkeypatch, then, now, said) -> None:
    def rows(names):
        keys = ("distribution", "version", "path")
        parts = [(None, None, n) if "/" in n else (*n.split(), "/site") for n in names]
        return [dict(zip(keys, part, strict=True)) for part in parts]

    lines: list[str] = []
    manager = SimpleNamespace(digest=lambda: "new", describe=lambda: rows(now))
    monkeypatch.setattr("trinity.runtime.stage.get_manager", lambda: manager)
    run = stage_run(rundir)
    monkeypatch.setattr(run, "_display", SimpleNamespace(say=lines.append))

    run._say_changed_plugins({"digest": "old", "plugins": rows(then)})

    assert lines == [f"the plugin set differs from the checkpoint's: {said}"]
