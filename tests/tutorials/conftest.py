"""What the tests of the published documents share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import trinity as trinity_package
from trinity.common.config import Config, load_config
from trinity.common.experience import Experience
from trinity.explorer.explorer import Explorer, ExploreResult
from trinity.explorer.scheduler_builder import build_scheduler
from trinity.runtime.record.result import RunResult
from trinity_testing.engines import AnsweringEngine, ScriptedEngine
from trinity_testing.scripted_model import model_over


@pytest.fixture
def run_it(config_dict, write_yaml, a_process) -> Callable[[], RunResult]:
    """Return a function that runs ``config_dict`` to its end, in this process."""
    return lambda: trinity_package.run(load_config(write_yaml(config_dict)), local=True)


@pytest.fixture
def rolled_out() -> Callable[[RunResult], list[dict[str, Any]]]:
    """Return a function that reads each experience of a run as the workflow gave it."""

    def read(result: RunResult) -> list[dict[str, Any]]:
        lines = (result.directory / "buffer" / "explorer_output.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return read


@pytest.fixture
def logged() -> Callable[..., list[dict[str, Any]]]:
    """Return a function that reads what the jsonl monitor wrote of one role."""

    def read(result: RunResult, role: str) -> list[dict[str, Any]]:
        lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["role"] == role]

    return read


class Tasks:
    """Tasks one after the other."""

    def __init__(self, tasks: Sequence[Any]) -> None:
        self._tasks = list(tasks)

    def read(self, count: int) -> list[Any]:
        if not self._tasks:
            raise StopIteration
        taken, self._tasks = self._tasks[:count], self._tasks[count:]
        return taken

    def feedback(self, outcomes: Mapping[str, Any]) -> None: ...


class Arrived:
    """Keeps what the explorer hands on."""

    def __init__(self) -> None:
        self.experiences: list[Experience] = []

    def process(self, exps: list[Experience]) -> dict[str, float]:
        self.experiences += exps
        return {}

    def feedback(self) -> dict[str, Any]:
        return {}

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Explored:
    """What one explore step gave."""

    engine: AnsweringEngine
    experiences: list[Experience]
    result: ExploreResult

    @property
    def prompts(self) -> list[str]:
        asked = sorted(self.engine.exchanges, key=lambda exchange: exchange.request.key)
        return [self.engine.tokenizer.decode(one.request.prompt_token_ids) for one in asked]


@pytest.fixture
def explored() -> Callable[..., Explored]:
    """Return a function that runs tasks on a scripted engine, as a run's explorer does."""
    made = []

    def explore(*tasks: Any, engine: AnsweringEngine | None = None, **settings: Any) -> Explored:
        config = Config()
        config.buffer.batch_size = len(tasks)
        for name, value in ({"max_retry_times": 0, "max_timeout": 20.0} | settings).items():
            setattr(config.explorer, name, value)
        engine, arrived = engine or ScriptedEngine("46", repeat=True), Arrived()
        explorer = Explorer(
            config,
            tasks=Tasks(tasks),
            scheduler=build_scheduler(config, engines=[engine], model=model_over(engine)),
            pipeline=arrived,
        )
        made.append(explorer)
        result = explorer.explore_step(1)
        return Explored(engine=engine, experiences=arrived.experiences, result=result)

    yield explore
    for explorer in made:
        explorer.close()
