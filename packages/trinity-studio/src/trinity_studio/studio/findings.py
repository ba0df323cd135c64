"""What ``trinity config check`` says of the document, by the key that it is about."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.config import check, probe, resolve_stages
from trinity.common.config.arithmetic import arithmetic
from trinity.common.config.explanation import further_problems
from trinity.common.config.load import read_config
from trinity.common.config.preparation import run_manager
from trinity.errors import TrinityError
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.common.config import Config, Problem

__all__ = ["Findings", "findings"]


@dataclass(kw_only=True)
class Findings:
    """What is wrong with a text, and what it comes to.

    Attributes:
        problems: what stops a run: lines by the path of the key in the file.
        notes: what stops nothing: lines.
        directory: where its run would keep its files; None: it cannot be read.
        root: the folder of all run directories.
    """

    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    directory: Path | None = None
    root: Path | None = None

    @property
    def count(self) -> int:
        """Return how many problems there are."""
        return sum(map(len, self.problems.values()))

    def add(self, path: str, line: str) -> None:
        """Note a problem of the key at a path, once."""
        lines = self.problems.setdefault(path, [])
        if line not in lines:
            lines.append(line)


def findings(text: str) -> Findings:
    """Return what the check of a run says of the text of a YAML file, on this machine."""
    found = Findings()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            reading = read_config(file)
            if reading.config is not None:
                _note_places(reading.config, found)
            if reading.config is None or reading.problems:
                _add(found, [*reading.problems, *further_problems(reading)])
            else:
                _look_at(reading.config, found)
        except TrinityError as error:
            found.add("", str(error).replace(str(file), "the page"))
    return found


def _note_places(config: Config, found: Findings) -> None:
    found.directory = RunDir.of(config).path
    found.root = Path(config.checkpoint_root_dir or "checkpoints")


def _look_at(config: Config, found: Findings) -> None:
    manager = run_manager(config)
    machine = probe(model_path=config.model.model_path)
    for stage in resolve_stages(config, machine, manager=manager):
        problems = check(stage, machine, manager=manager)
        lines = [*arithmetic(stage), *stage.notes]
        lines += [str(p) for p in problems if p.severity == "notice"]
        found.notes += [line for line in lines if line not in found.notes]
        stops = [problem for problem in problems if problem.severity != "notice"]
        for problem in stops:
            found.add(stage.source.written(problem.path), _line(problem))


def _add(found: Findings, problems: Iterable[Problem]) -> None:
    for problem in problems:
        found.add(problem.path, _line(problem))


def _line(problem: Problem) -> str:
    return f"{problem.message} {problem.remedy}".strip()
