"""Whatever a run is killed at, the same command leads to the weights of an unbroken one."""

from __future__ import annotations

import inspect
import json
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
import trinity
from trinity.common.config import load_config
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.errors import RunFailedError, WorkerLostError
from trinity.explorer.explorer import Explorer
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.loop import Loop
from trinity.runtime.record.result import RunStatus
from trinity.runtime.record.sample_files import places_of, read_step
from trinity_testing.history import read_history

pytestmark = pytest.mark.slow

RUN = "trinity.runtime"
EXPLORE = "trinity.explorer.explorer:Explorer.explore_step"
TRAIN = "trinity.trainer.torch_trainer:TorchTrainer.train_step"
SAVE = f"{RUN}.record.checkpoint:CheckpointStore"
WRITTEN = "trinity.buffer.pipeline:ExperiencePipeline.process"
STORED = "trinity.buffer.step_file:StepFile.write"
PROGRESS = f"{RUN}.checkpoint_writer:CheckpointWriter.save_progress"


@REWARD_FUNCTIONS.register_module("letters")
class Letters(RewardFn):
    def __call__(self, response=None, **kwargs):
        return {"letters": sum(map(str.isalpha, response or "")) / 8}


@pytest.fixture(scope="module")
def dying(tmp_path_factory, forks):
    """Return a function that runs a configuration in a process that may be killed at a call."""
    plugins = tmp_path_factory.mktemp("plugins")
    names = "from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn\n\n\n"
    (plugins / "letters.py").write_text(names + inspect.getsource(Letters))

    def run(config, at="", **where):
        return forks(config=str(config), plugins=str(plugins), at=at, **where)

    return run


@pytest.fixture
def config_dict(config_dict, taskset):
    """Return four explore steps of eight experiences, eight optimizer steps of six or two."""
    taskset["default_reward_fn_type"] = "letters"
    config_dict["buffer"] |= {"batch_size": 2, "train_batch_size": 6}
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [taskset | {"name": "held_out"}]
    config_dict["explorer"] |= {"eval_on_startup": True, "eval_interval": 2}
    config_dict["trainer"] = {"save_interval": 1}
    config_dict["monitor"] = {"monitor_type": "tensorboard"}
    return config_dict


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def unbroken(config_dict, write_yaml, dying, run_dir, kept):
    """Return the history and the metrics of the same run, which nothing happens to."""
    if not kept:
        ended = dying(write_yaml(config_dict | {"name": "unbroken"}, "unbroken.yaml"))
        assert ended["code"] == 0, ended["said"]
        directory = run_dir.with_name("unbroken")
        kept.update(history=read_history(directory), lines=lines_of(directory))
    return kept


def finish_in_spite_of(kills, config, dying) -> None:
    for at, call, side in kills:
        killed = dying(config, at, call=call, side=side)
        assert killed["code"] == -9, (at, killed["said"])
    ended = dying(config)
    assert ended["code"] == 0, ended["said"]


def lines_of(directory):
    """Return the metrics that hold what was computed, not how long it took."""
    rows = read_metrics(directory / "monitor")
    return [{k: v for k, v in row.items() if "time/" not in k} for row in rows]


def assert_alike(rows, others) -> None:
    assert [row.keys() for row in rows] == [row.keys() for row in others]
    for one, other in zip(rows, others, strict=True):
        assert one == pytest.approx(other, abs=1e-5), (one["role"], one["step"])


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(
            [
                (TRAIN, 1, "after"),
                (f"{SAVE}._replace", 2, "before"),
            ],
            id="in train step and save",
        ),
        pytest.param(
            [(f"{RUN}.loop:Loop._sync", 1, "before")], id="in sync", marks=pytest.mark.acceptance
        ),
        pytest.param(
            [(EXPLORE, 1, "after"), (TRAIN, 1, "after"), (f"{SAVE}._write", 1, "after")],
            id="before the first checkpoint",
            marks=pytest.mark.acceptance,
        ),
        pytest.param(
            [
                (f"{SAVE}._replace", 2, "before"),
                (f"{SAVE}._replace", 1, "after"),
                (f"{SAVE}._prune", 2, "before"),
            ],
            id="in the save",
            marks=pytest.mark.acceptance,
        ),
        pytest.param(
            [
                (f"{RUN}.record.samples:TrainedHistory.trained", 2, "before"),
                (f"{RUN}.record.samples:TrainedHistory.trained", 2, "after"),
                ("trinity.trainer.torch_trainer:TorchTrainer.save", 1, "after"),
            ],
            id="in the optimizer step",
            marks=pytest.mark.acceptance,
        ),
        pytest.param(
            [
                (f"{RUN}.loop:Loop._sync", 1, "before"),
                (f"{RUN}.loop:Loop._sync", 1, "after"),
                ("trinity.explorer.explorer:Explorer.evaluate", 2, "after"),
                (f"{RUN}.record.checkpoint:CheckpointStore.restate", 1, "before"),
                (f"{RUN}.record.rundir:RunDir.write_status", 2, "before"),
            ],
            id="in sync, evaluation, and the end",
            marks=pytest.mark.acceptance,
        ),
    ],
)
def test_a_killed_run_trains_each_experience_once(
    kills, config_dict, write_yaml, dying, unbroken, run_dir, status_of
) -> None:
    finish_in_spite_of(kills, write_yaml(config_dict), dying)

    history = read_history(run_dir)
    assert history == unbroken["history"]
    assert max(Counter(eid for step in history for eid in step).values()) == 1
    assert sum(map(len, history)) == status_of()["trained_experiences"] == 32
    assert_alike(lines_of(run_dir), unbroken["lines"])
    samples = [read_step(place) for place in places_of(run_dir)]
    assert [[sample.eid for sample in step] for step in samples] == history
    assert scalars_of(run_dir) == {
        "explorer": [1, 2, 3, 4],
        "trainer": [1, 2, 3, 4, 5, 6, 7, 8],
        "synchronizer": [1, 2, 3, 4],
    }


def scalars_of(directory) -> dict[str, list[int]]:
    """Return the steps of which TensorBoard has a scalar."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps = {}
    for role in ("explorer", "trainer", "synchronizer"):
        events = EventAccumulator(str(directory / "monitor" / "tensorboard" / role)).Reload()
        tag = {"explorer": "rollout/reward/mean", "trainer": "actor/loss"}.get(role, "time/sync_s")
        steps[role] = [scalar.step for scalar in events.Scalars(tag)]
    return steps


LEDGER = "trinity_ledger.ledger:Ledger"


@pytest.mark.parametrize(
    "kills",
    [
        [(f"{LEDGER}.claim", 2, "after")],
        pytest.param([(f"{SAVE}._replace", 2, "before")], marks=pytest.mark.acceptance),
        pytest.param(
            [
                (f"{LEDGER}.begin_anew", 1, "after"),
                (f"{LEDGER}.write", 1, "after"),
                (f"{LEDGER}.keep", 1, "before"),
                (f"{LEDGER}.keep", 1, "after"),
                (f"{SAVE}._replace", 1, "after"),
                (f"{LEDGER}.forget_bodies", 1, "before"),
                (f"{LEDGER}.forget_bodies", 1, "after"),
                (TRAIN, 2, "after"),
                (f"{LEDGER}.cut_back", 1, "before"),
                (f"{LEDGER}.cut_back", 1, "after"),
                (EXPLORE, 1, "after"),
                (f"{LEDGER}.claim", 1, "before"),
                (f"{RUN}.loop:Loop._sync", 1, "after"),
            ],
            marks=pytest.mark.acceptance,
        ),
    ],
)
def test_a_killed_run_with_a_ledger_trains_each_experience_once(
    kills, config_dict, write_yaml, dying, unbroken, run_dir
) -> None:
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": {"storage_type": "sql"}}

    finish_in_spite_of(kills, write_yaml(config_dict), dying)

    assert read_history(run_dir) == unbroken["history"]
    assert_alike(lines_of(run_dir), unbroken["lines"])
    trained = [uid for step in unbroken["history"] for uid in step]
    query = "SELECT uid FROM experience ORDER BY train_step, train_place"
    with closing(sqlite3.connect(run_dir / "buffer/ledger.db")) as ledger:
        assert [uid for (uid,) in ledger.execute(query)] == trained


@pytest.mark.acceptance
def test_a_killed_run_uses_a_replay_buffer_as_an_unbroken_one(
    config_dict, write_yaml, dying, run_dir, status_of
) -> None:
    replay = {"enable": True, "reuse_cooldown_time": 0, "priority_fn_args": {"decay": 0.1}}
    config_dict["buffer"]["train_batch_size"] = 12
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": {"replay_buffer": replay}}
    config_dict["synchronizer"] = {"sync_style": "dynamic_by_explorer"}
    ended = dying(write_yaml(config_dict | {"name": "unbroken_replay"}, "unbroken.yaml"))
    assert ended["code"] == 0, ended["said"]
    kills = [
        (EXPLORE, 2, "after"),
        (TRAIN, 2, "after"),
        (f"{SAVE}._replace", 1, "after"),
        ("trinity_algorithms.replay.storage:ReplayStorage.read", 1, "after"),
    ]

    finish_in_spite_of(kills, write_yaml(config_dict), dying)

    unbroken = run_dir.with_name("unbroken_replay")
    assert read_history(run_dir) == read_history(unbroken)
    assert_alike(lines_of(run_dir), lines_of(unbroken))
    counts = status_of()["buffer"]
    assert counts == json.loads((unbroken / "run.json").read_text())["buffer"]
    assert counts["reused"] > 0


@pytest.mark.acceptance
@pytest.mark.parametrize(
    "kills",
    [
        [
            (WRITTEN, 1, "before"),
            (STORED, 1, "after"),
            (PROGRESS, 1, "before"),
            (STORED, 2, "after"),
        ],
        [(STORED, 4, "after"), (PROGRESS, 1, "before")],
    ],
)
def test_a_killed_explore_run_writes_each_row_once(
    kills, config_dict, write_yaml, dying, tmp_path, run_dir
) -> None:
    stored = tmp_path / "stored.jsonl"
    buffer = {"name": "stored", "storage_type": "file", "path": str(stored)}
    config_dict["mode"] = "explore"
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": buffer}
    config_dict["data_processor"] = {"experience_pipeline": {"save_input": True}}
    stored.write_text('{"of": "the user"}\n')

    finish_in_spite_of(kills, write_yaml(config_dict), dying)

    first, *rows = [json.loads(line) for line in stored.read_text().splitlines()]
    raw = (run_dir / "buffer" / "explorer_output.jsonl").read_text().splitlines()
    assert first == {"of": "the user"}
    for lines in (rows, [json.loads(line) for line in raw]):
        eids = [json.dumps(row["eid"]) for row in lines]
        assert len(eids) == len(set(eids)) == 32


def test_sigterm_finishes_the_step_and_the_run_goes_on(
    config_dict, write_yaml, dying, run_dir
) -> None:
    path = write_yaml(config_dict)

    stopped = dying(path, EXPLORE, call=2, side="before", signal=15)

    assert stopped["code"] == 130, stopped["said"]
    assert "Ctrl-C again stops at once" in stopped["said"]
    assert len(read_history(run_dir)) == 2
    assert dying(path)["code"] == 0
    assert sum(map(len, read_history(run_dir))) == 32


@pytest.fixture
def run(config_dict, write_yaml):
    return lambda: trinity.run(load_config(write_yaml(config_dict)), local=True)


@pytest.fixture
def lose_a_room(monkeypatch):
    """Let the process of a room die, as a Ray room's does, at the steps that are given."""

    def lose(steps):
        explore_step = Explorer.explore_step

        def dies(self, step):
            if step in steps:
                steps.remove(step)
                raise WorkerLostError("runner-0", cause="The actor died unexpectedly.")
            return explore_step(self, step)

        monkeypatch.setattr(Explorer, "explore_step", dies)

    return lose


def test_rooms_that_are_lost_are_started_anew(
    run, lose_a_room, run_dir, unbroken, capsys, golden, monkeypatch
) -> None:
    monkeypatch.setattr("trinity.runtime.supervisor.num_oom_kills", lambda: 0)
    lose_a_room([1, 3, 4])

    assert run().status is RunStatus.FINISHED

    assert read_history(run_dir) == unbroken["history"]
    assert_alike(lines_of(run_dir), unbroken["lines"])
    said = [line for line in capsys.readouterr().out.splitlines() if "process of" in line]
    golden("\n".join(said), "rooms_lost")


def test_a_room_that_is_lost_again_and_again_ends_the_run(
    run, lose_a_room, status_of, golden, monkeypatch
) -> None:
    kills = iter([0, 0, 0, 0, 1])
    monkeypatch.setattr("trinity.runtime.supervisor.num_oom_kills", lambda: next(kills))
    lose_a_room([2] * 4)

    with pytest.raises(RunFailedError) as caught:
        run()

    golden(str(caught.value), "rooms_lost_for_good")
    assert status_of()["status"] == "failed"


@pytest.mark.acceptance
def test_a_room_that_is_lost_while_the_run_stops_is_not_started_anew(
    run, monkeypatch, status_of
) -> None:
    def dies(self, **_):
        self._parts.interrupt.request()
        raise WorkerLostError("trainer", cause="The actor died unexpectedly.")

    monkeypatch.setattr(Loop, "_sync", dies)

    assert run().exit_code == 130
    assert status_of()["status"] == "interrupted"
