"""Break runs off and keep what they left: ``python record.py [CASE ...]``, from the sources in use.

Each case becomes an archive ``CASE.tar.xz``: a folder with a configuration, its rows and reward,
and the directory of a run as it was when a checkpoint of the wanted kind had been written, or when
the process was killed. A folder lacks only the model, ``make_tiny_model("model", **MODEL)``.

The archives are what an earlier version of the runtime left, so they are not made anew: this is
how they were made, at commit 6e73c0d. Where a later version writes another format, its runs are
added as cases with names of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
INPUTS = HERE.with_name("recorded_runs")
MODEL = {"vocab": 259, "hidden": 8, "layers": 1, "heads": 2}
NEUTRAL = "/opt/trinity"  # in place of where plugins lay on the machine that recorded
RECORDED_AT = 1767225600  # 2026-01-01: a zip file, as of plugins over Ray, knows none before 1980
Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run, and when it is broken off."""

    settings: Settings
    is_wanted: Callable[[Settings], bool] = bool  # of state.json; the first checkpoint that is
    over_ray: bool = False
    dies_at: int = 0  # the call of the reward that kills the process; 0: none
    after: str = ""  # the mode of a run before it, which leaves its experiences


def progress_is(**wanted: Callable[[Any], bool]) -> Callable[[Settings], bool]:
    """Return whether a state's progress has these values."""
    return lambda state: all(test(state["progress"][name]) for name, test in wanted.items())


def has_newer_weights(state: Settings) -> bool:
    """Return whether the trainer is ahead of the engines, and rollout steps wait."""
    progress = state["progress"]
    return 0 < progress["pulled"] < progress["trained"] and any(progress["written"])


def has_engines(state: Settings) -> bool:
    """Return whether the checkpoint keeps older weights for the engines."""
    return state.get("engines", {"version": 0})["version"] > 0


def has_groups_of_all_states(state: Settings) -> bool:
    """Return whether groups run, wait and are taken."""
    flight = state["explorer"]["flight"]
    return all(flight[name] for name in ("running", "waiting", "taken"))


BATCHES = {"buffer": {"train_batch_size": 6}}
LEDGER = {"trainer_input": {"experience_buffer": {"storage_type": "sql"}}}
STORED = {"experience_buffer": {"storage_type": "file", "path": "stored.jsonl"}}
REPLAY = {"replay_buffer": {"enable": True, "reuse_cooldown_time": 0}}
IN_GROUPS = {"sync_style": "fully_async", "sync_interval": 2}
CASES = {
    "fixed_ahead": Case(
        settings=BATCHES | {"synchronizer": {"sync_interval": 2, "sync_offset": 1}},
        is_wanted=progress_is(written=any, num_due=bool, pulled=bool),
    ),
    "fixed_overlapped": Case(
        settings=BATCHES | {"synchronizer": {"sync_interval": 2, "sync_offset": 1}},
        is_wanted=has_engines,
        over_ray=True,
    ),
    "fixed_ledger": Case(
        settings={"buffer": {"train_batch_size": 6, **LEDGER}, "synchronizer": {"sync_offset": 2}},
        is_wanted=progress_is(written=any, num_due=bool, pulled=bool),
    ),
    "explorer_driven": Case(
        settings=BATCHES | {"synchronizer": {"sync_style": "explorer_driven", "sync_interval": 2}},
        is_wanted=has_newer_weights,
        over_ray=True,
    ),
    "trainer_driven": Case(
        settings=BATCHES | {"synchronizer": {"sync_style": "trainer_driven", "sync_interval": 2}},
        is_wanted=has_newer_weights,
        over_ray=True,
    ),
    "fully_async": Case(
        settings={
            "synchronizer": IN_GROUPS, "explorer": {"max_inflight_batches": 3, "window": 0.0}
        },
        is_wanted=has_groups_of_all_states,
    ),
    "fully_async_ledger": Case(
        settings={
            "synchronizer": IN_GROUPS, "explorer": {"max_inflight_batches": 3, "window": 0.5},
            "buffer": LEDGER,
        },
        is_wanted=has_groups_of_all_states,
    ),
    "replay": Case(
        settings={
            "synchronizer": {"sync_style": "explorer_driven"},
            "buffer": {"train_batch_size": 6, "trainer_input": {"experience_buffer": REPLAY}},
            "trainer": {"total_steps": 8},
        },
        is_wanted=progress_is(trained=lambda step: step == 3),
    ),
    "explore": Case(settings={"mode": "explore", "buffer": {"trainer_input": STORED}}, dies_at=28),
    "train": Case(
        settings={"mode": "train", "buffer": {"train_batch_size": 6, "trainer_input": STORED}},
        is_wanted=progress_is(trained=lambda step: step == 2),
        after="explore",
    ),
}  # fmt: skip


def main() -> None:
    """Record the cases that the command line names, or all."""
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "folder")
            record(CASES[name], folder=folder, kept=Path(scratch, "kept"))
            with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as archive:
                for path in sorted(folder.iterdir()):
                    archive.add(path, path.name, filter=_of_nobody)
        sys.stdout.write(f"{name}: {(HERE / f'{name}.tar.xz').stat().st_size} bytes\n")


def record(case: Case, *, folder: Path, kept: Path) -> None:
    """Run a case in a folder, and leave there what it was to leave."""
    from trinity_testing.tiny import make_tiny_model

    kept.mkdir()
    shutil.copytree(INPUTS / "plugins", folder / "plugins", ignore=lambda *_: ["__pycache__"])
    shutil.copy(INPUTS / "rows.jsonl", folder)
    config = yaml.safe_load((INPUTS / "run.yaml").read_text(encoding="utf-8"))
    run = folder / "runs" / config["project"] / config["name"]
    own = {"buffer": {"total_steps": 6}, "trainer": {"save_interval": 1}}
    config = merged(merged(config, own), case.settings)
    if case.dies_at:  # an evaluation would call the reward too
        del config["buffer"]["explorer_input"]["eval_tasksets"]
    make_tiny_model(folder / "model", **MODEL)
    if case.after:
        (folder / "run.yaml").write_text(yaml.safe_dump(config | {"mode": case.after}))
        _call(case, folder=folder, kept=kept)
        shutil.rmtree(folder / "runs")
    (folder / "run.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    _call(case, folder=folder, kept=kept)
    if not case.dies_at:
        shutil.rmtree(run)
        shutil.move(_wanted(case, kept), run)
    shutil.rmtree(folder / "model")
    for path in [run / "plugins.json", *run.rglob("*state.json")]:
        _without_machine(path)


def merged(one: Settings, other: Settings) -> Settings:
    """Return settings in which those of ``other`` win, level by level."""
    both = one.keys() & other.keys()
    nested = {
        key: merged(one[key], other[key])
        for key in both
        if isinstance(one[key], dict) and isinstance(other[key], dict)
    }
    return {**one, **other, **nested}


def _call(case: Case, *, folder: Path, kept: Path) -> None:
    where = [] if case.over_ray else ["--local"]
    environment = {"KEEP_IN": str(kept), "DIE_AT_CALL": str(case.dies_at)}
    command = ["-m", "trinity", "run", *where, "--config", "run.yaml"]
    ended = subprocess.run(
        [sys.executable, *command, "--plugin-dir", HERE / "keeper"],
        cwd=folder,
        env=os.environ | environment,
        check=False,
    )
    assert ended.returncode == (-9 if case.dies_at else 0)


def _wanted(case: Case, kept: Path) -> Path:
    """Return the first directory whose newest checkpoint is of the wanted kind."""
    for directory in sorted(kept.iterdir()):
        newest = (directory / "latest_checkpointed_iteration.txt").read_text().strip()
        state = json.loads((directory / f"global_step_{newest}" / "state.json").read_text())
        if case.is_wanted(state):
            for other in directory.glob("global_step_*"):
                if other.name != f"global_step_{newest}":
                    shutil.rmtree(other)  # one is enough, and makes half of the size
            return directory
    raise RuntimeError(f"no checkpoint of {len(list(kept.iterdir()))} is of the wanted kind")


def _without_machine(path: Path) -> None:
    """Write a record anew, with plugins at a neutral place."""
    from trinity.runtime.record.records import write_record

    if not path.exists():
        return
    record = json.loads(path.read_text(encoding="utf-8"))
    for plugin in record["plugins"] if isinstance(record, dict) else record:
        plugin["path"] = f"{NEUTRAL}/{'/'.join(Path(plugin['path']).parts[-2:])}"
    if isinstance(record, dict):
        record.pop("checksum")
        write_record(path, record)
    else:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a file of an archive with nobody's name; None: it is left out."""
    if Path(member.name).name in {"__pycache__", ".run.lock", "run.lock", "trinity.log", "logs"}:
        return None
    member.uid = member.gid = 0
    member.mtime = RECORDED_AT
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
