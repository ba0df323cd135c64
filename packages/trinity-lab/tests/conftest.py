"""Run directories as runs leave them, and the command line with the commands of this package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

METRIC = "eval/held_out/reward/mean@2"
HELD_OUT = {"path": "/data/held_out.jsonl"}


@pytest.fixture
def call() -> Iterator[Callable[..., Any]]:
    """Return a function that runs a command here; plugin folders that it adds are taken back."""
    from trinity.cli.main import app
    from trinity.extend import get_manager, set_manager

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(one) for one in arguments])

    before = get_manager()
    yield run
    set_manager(before)


@pytest.fixture
def a_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a run directory with a last evaluation."""

    def write(
        name: str,
        value: float,
        *,
        seed: int = 0,
        status: str = "finished",
        tasks: Sequence[float | None] = (),
        held_out: Mapping[str, str] = HELD_OUT,
        root: str = "",
        first_token: int = 1,
        **settings: Any,
    ) -> Path:
        folder = tmp_path / root / name
        folder.mkdir(parents=True)
        record = {"status": status, "evaluation": {METRIC: value}}
        (folder / "run.json").write_text(json.dumps(record))
        config = {"name": name, "seed": seed, "algorithm": settings, "path": f"runs/{name}/x"}
        sets = [{"name": "other", "path": "/other"}, {"name": "held_out", **held_out}]
        config["buffer"] = {"explorer_input": {"eval_tasksets": sets}}
        if root:
            config |= {"project": "", "checkpoint_root_dir": f"./{Path(root).name}"}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        if tasks:
            write_evaluation(folder, tasks, first_token=first_token)
        return folder

    return write


def write_origins(folder: Path, **origins: str) -> None:
    """Write where the settings of a run came from; those of ``algorithm`` by their last names."""
    named = {f"algorithm.{name}": origin for name, origin in origins.items()}
    (folder / "origins.json").write_text(json.dumps(named))


def write_evaluation(folder: Path, tasks: Sequence[float | None], *, first_token: int = 1) -> None:
    """Write one evaluation with two rollouts a task, whose mean is the value given; None: none."""
    from trinity.common.experience import EID
    from trinity.runtime.record.evaluation_samples import EvaluationLog
    from trinity_testing.builders import an_experience

    rows = [
        an_experience(
            prompt=(first_token, task),
            reward=value + sign,
            eid=EID(batch="eval", task=task, run=run),
        )
        for task, value in enumerate(tasks)
        for run, sign in enumerate((-0.1, 0.1))
        if value is not None
    ]
    EvaluationLog(folder, limit=10**6, is_bench=False).evaluated(4, "held_out", rows)
