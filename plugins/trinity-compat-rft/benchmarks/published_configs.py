"""Say which of Trinity-RFT's configurations can be run here as they are.

    python plugins/trinity-compat-rft/benchmarks/published_configs.py FOLDER [--why]

FOLDER holds YAML files, at any depth. Each is checked as ``trinity config check`` does, in one
process. The model and the data that a user would have are stood in for: a folder that looks like a
model with a long context, and one row with the columns that ``format`` and the workflow name.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from trinity.common.config import check, load_config, probe, resolve_stages
from trinity.common.config.preparation import run_manager
from trinity.common.config.problem import listed
from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Iterator

_INPUT, _TRAINER = "buffer.explorer_input", "buffer.trainer_input"
_COLUMNS = {  # that workflows read by themselves
    "size": 4,
    "p": 0.8,
    "seed": 0,
    "tools": "[]",
    "raw_system": "",
    "conversations": [],
    "rubric": [],
    "messages": [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}],
    "chosen": "2",
    "rejected": "3",
    "prompt": "1 + 1",
    "question": "1 + 1",
    "answer": "2",
    "response": "2",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the check says of one file."""

    name: str
    problems: list[str]


def main() -> None:
    """Print a line for each file, its problems with ``--why``, and how many are ok."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--why", action="store_true", help="print each problem")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # older names of settings
    found = list(verdicts(given.folder))
    for verdict in found:
        count = len(verdict.problems)
        said = [f"{verdict.name}: {f'{count} problems' if count else 'ok'}"]
        said += [f"  {problem}" for problem in verdict.problems] if given.why else []
        sys.stdout.write("\n".join(said) + "\n")
    num_ok = sum(not verdict.problems for verdict in found)
    sys.stdout.write(f"{num_ok} of {len(found)} ok\n")


def verdicts(folder: Path) -> Iterator[Verdict]:
    """Yield what the check says of each file of the folder, in the order of their names."""
    with tempfile.TemporaryDirectory() as made:
        stand_ins = StandIns(Path(made))
        for file in sorted(folder.rglob("*.yaml")):
            problems = _problems(file, stand_ins)
            texts = [text.replace(f"{file}:", "").replace(made, "") for text in problems]
            yield Verdict(name=str(file.relative_to(folder)), problems=texts)


class StandIns:
    """The model and the rows that a user would have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model"
        self.model.mkdir()
        config = {"model_type": "qwen3", "max_position_embeddings": 131072}
        (self.model / "config.json").write_text(json.dumps(config))
        (self.model / "tokenizer.json").write_text("{}")
        self._num_files = 0

    def rows(self, columns: dict[str, Any]) -> Path:
        """Return a file with one row that has these columns; a dotted name is a column within."""
        row: dict[str, Any] = dict(_COLUMNS)
        for name, value in columns.items():
            *above, last = name.split(".")
            inner = row
            for part in above:
                inner = inner.setdefault(part, {})
            inner.setdefault(last, value)
        self._num_files += 1
        path = self.folder / f"rows{self._num_files}.jsonl"
        path.write_text(json.dumps(row) + "\n")
        return path

    def settings(self, raw: dict[str, Any]) -> list[str]:
        """Return the settings that name them in place of what a file names."""
        settings = [f"model.model_path={self.model}"]
        buffer = raw.get("buffer") or {}
        for path, dataset in _datasets(buffer):
            if isinstance(dataset, dict) and dataset.get("storage_type", "file") == "file":
                settings.append(f"{path}.path={self.rows(_columns(dataset.get('format') or {}))}")
        return settings


def _datasets(buffer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    explored, trained = buffer.get("explorer_input") or {}, buffer.get("trainer_input") or {}
    if "taskset" in explored:
        yield f"{_INPUT}.taskset", explored["taskset"]
    for name in ("tasksets", "eval_tasksets"):
        for number, taskset in enumerate(explored.get(name) or []):
            yield f"{_INPUT}.{name}.{number}", taskset
    for name, auxiliary in (trained.get("auxiliary_buffers") or {}).items():
        yield f"{_TRAINER}.auxiliary_buffers.{name}", auxiliary
    experiences = trained.get("experience_buffer") or {}
    if experiences.get("storage_type") == "file":
        yield f"{_TRAINER}.experience_buffer", experiences


def _columns(form: dict[str, Any]) -> dict[str, Any]:
    named = {str(form[key]): "1" for key in form if key.endswith("_key") and form[key]}
    messages = form.get("messages_key")
    return {**named, **({messages: _COLUMNS["messages"]} if messages else {})}


def _problems(file: Path, stand_ins: StandIns) -> list[str]:
    text = file.read_text(encoding="utf-8")
    raw = yaml.safe_load(text)
    env = dict(os.environ)
    for name, default in re.findall(r"oc\.env:(TRINITY_\w+)(,?)", text):
        if "PATH" in name:
            env.setdefault(name, str(stand_ins.rows({})))
        elif not default:  # of others, such as a run's name, the default is used
            env.setdefault(name, str(stand_ins.folder))
    try:
        config = load_config(file, overrides=stand_ins.settings(raw), env=env)
        manager = run_manager(config)
        machine = probe(model_path=config.model.model_path)
        stages = resolve_stages(config, machine, manager=manager)
        found = [p for stage in stages for p in check(stage, machine, manager=manager)]
    except TrinityError as error:
        lines = str(error).splitlines()
        return lines[1:] or lines
    return list(dict.fromkeys(listed(p for p in found if p.severity != "notice")))


if __name__ == "__main__":
    main()
