"""Weights & Biases, offline: what is in the folder that ``wandb sync`` would upload."""

from __future__ import annotations

import json
import struct
import time

import pytest
from trinity_monitors.wandb_monitor import WandbMonitor

pytest.importorskip("wandb", reason="pip install 'trinity-monitors[wandb]'")
wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")


BLOCK, HEAD, FILE_HEAD = 32768, 7, 7  # bytes: records stand in blocks, as LevelDB's log does


def records(path):
    """Yield what a file of wandb holds, in order; a record in several pieces is put together."""
    data, at, whole = path.read_bytes(), FILE_HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEAD])
        whole += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in {1, 4}:  # a whole record, or its last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def logged(directory, *, num_starts):
    """Return id, name and the rows of each start, oldest first, once wandb's process wrote them."""
    end, starts = time.monotonic() + 60, []
    while time.monotonic() < end:
        paths = directory.glob("wandb/offline-run-*/*.wandb")
        starts = [list(records(path)) for path in sorted(paths, key=lambda p: p.stat().st_mtime)]
        if sum(any(record.HasField("exit") for record in own) for own in starts) == num_starts:
            break
        time.sleep(0.2)
    return [read(own) for own in starts]


def read(own):
    """Return id, name and rows of one start."""
    run = next(record.run for record in own if record.HasField("run"))
    rows = []
    for record in own:
        if record.HasField("history"):
            items = record.history.item
            row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
            rows.append({k: v for k, v in row.items() if k[0] != "_" or k == "_step"})
    return run.run_id, run.display_name, rows


def test_a_run_that_goes_on_keeps_its_id_and_writes_no_step_twice(tmp_path) -> None:
    first = WandbMonitor(directory=tmp_path, role="trainer", mode="offline")
    for step in (1, 2, 3):
        first.log({"actor/loss": step / 4}, step=step)
    first.close()
    first.close()

    again = WandbMonitor(directory=tmp_path, role="trainer", mode="offline")
    for step in (2, 3, 4):  # back to the checkpoint after step 1
        again.log({"actor/loss": step / 4}, step=step)
    again.log({"actor/extra": 1.0}, step=4)
    again.close()

    (run_id, name, rows), (same_id, _, more) = logged(tmp_path, num_starts=2)
    assert run_id == same_id
    assert name.endswith("_trainer")
    assert rows == [{"_step": s, "step": s, "actor/loss": s / 4} for s in (1, 2, 3)]
    assert more == [{"_step": 4, "step": 4, "actor/loss": 1.0, "actor/extra": 1.0}]


def test_checkpoints_that_are_evaluated_afterwards_keep_their_steps(tmp_path) -> None:
    first = WandbMonitor(directory=tmp_path, role="explorer", mode="offline")
    for step in (1, 2):
        first.log({"rollout/reward": step / 4}, step=step)
    for step in (0, 1, 2):
        first.log({"bench/rows/reward": step / 8}, step=step)
    first.close()

    ((_, _, rows),) = logged(tmp_path, num_starts=1)
    assert [(row["step"], row["rollout/reward"]) for row in rows[:2]] == [(1, 0.25), (2, 0.5)]
    assert [(row["step"], row["bench/rows/reward"]) for row in rows[2:]] == [
        (0, 0.0),
        (1, 0.125),
        (2, 0.25),
    ]


def test_two_roles_have_runs_of_their_own_in_one_process(tmp_path) -> None:
    roles = {r: WandbMonitor(directory=tmp_path, role=r, mode="offline") for r in ("a", "b")}
    for role, monitor in roles.items():
        monitor.log({f"{role}/x": 1.0}, step=1)
    for monitor in roles.values():
        monitor.close()

    starts = logged(tmp_path, num_starts=2)
    assert len({run_id for run_id, _, _ in starts}) == 2
    names = [name for _, _, rows in starts for name in rows[0] if "/" in name]
    assert sorted(names) == ["a/x", "b/x"]


SAMPLE = {"eid": "1/0/0/0", "reward": 1.0, "advantage": 0.5, "prompt": "2 + 2 =", "response": "4"}


def test_samples_are_a_table_beside_the_metrics_of_their_step(tmp_path) -> None:
    first = WandbMonitor(directory=tmp_path, role="trainer", mode="offline")
    first.log({"actor/loss": 0.5}, step=1)
    first.log_samples([SAMPLE, SAMPLE], step=1)
    first.log({"actor/loss": 0.25}, step=2)
    first.close()
    again = WandbMonitor(directory=tmp_path, role="trainer", mode="offline")
    again.log_samples([SAMPLE], step=1)  # it has them
    again.close()

    (_, _, rows), (_, _, more) = logged(tmp_path, num_starts=2)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["actor/loss"] == 0.5
    assert any("table" in str(value) for name, value in rows[0].items() if "samples" in name)
    assert not any("samples" in name for row in more for name in row)
    (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/*.table.json")
    assert json.loads(table.read_text())["data"] == [list(SAMPLE.values())] * 2
