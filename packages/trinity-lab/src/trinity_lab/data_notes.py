"""What `trinity config check` says of the files of tasks: a line each, and a note for a problem."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.buffer.row_files import load_rows
from trinity.errors import TrinityError

from trinity_lab.data_report import findings_of, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.config import Config
    from trinity.common.config.buffer import TasksetConfig

    from trinity_lab.data_report import Row

_MOST_BYTES = 20_000_000  # of a file that is read whole
_MOST_COUNTED = 5_000  # prompts whose tokens are counted


def data_notes(config: Config) -> list[str]:
    """Return a line for each file of training tasks, and a note for each problem in it.

    Tables, files of other machines, of the hub, and large ones are left out, so that a check needs
    two seconds; `trinity data` reads them.
    """
    inputs = config.buffer.explorer_input
    single = [inputs.taskset] if inputs.taskset else []
    training = [*single, *(one for one in inputs.tasksets if one not in single)]
    held_out = [row for one in inputs.eval_tasksets for row in _rows(config, one)]
    read = [(taskset, _rows(config, taskset)) for taskset in training]
    lines = [
        line
        for taskset, rows in read
        for line in (
            _lines(config, taskset, rows, held_out) if rows else _without_prompts(config, taskset)
        )
    ]
    return lines + _of_steps(config, [len(rows) for _, rows in read])


def _of_steps(config: Config, counts: list[int]) -> list[str]:
    """Return a note where a step has more tasks than the files have rows; 0: not known of one."""
    size, num = config.buffer.batch_size, sum(counts)
    is_asked = config.mode in {"both", "explore"} and config.buffer.total_steps is not None
    if not is_asked or not counts or not all(counts) or num >= size:
        return []
    return [
        f"note: buffer.batch_size is {size}, and there are {num} rows of tasks: a step asks each "
        f"of them up to {math.ceil(size / num)} times"
    ]


def _lines(
    config: Config, taskset: TasksetConfig, rows: list[Row], held_out: list[Row]
) -> list[str]:
    count = _counter(config) if len(rows) <= _MOST_COUNTED else None
    limit = config.model.max_prompt_tokens or 0
    found = findings_of(rows, held_out=held_out, count=count, max_tokens=limit)
    told = [f"{len(rows)} rows", *(one.text for one in found if not one.is_problem)]
    name = Path(taskset.path or "").name
    name += "" if taskset.split == "train" else f", split {taskset.split}"
    return [
        f"data {name}: {'; '.join(told)}",
        *(
            f"note: data {name}: {one.text}{f' ({one.rows[0]})' if one.rows else ''}"
            for one in found
            if one.is_problem
        ),
    ]


def _without_prompts(config: Config, taskset: TasksetConfig) -> list[str]:
    """Return a note where no row has the column that a workflow of one turn asks with."""
    path, key = _file(config, taskset), taskset.format.prompt_key
    is_default = key == type(taskset.format)().prompt_key  # else the check itself refuses it
    if path is None or not is_default or not _asks_with_prompt(taskset):
        return []
    try:
        columns = {name for row in load_rows(str(path), split=taskset.split) for name in row}
    except TrinityError:  # the check itself tells what is wrong with it
        return []
    if key.partition(".")[0] in columns:
        return []
    return [
        f"note: data {path.name}: no row has the column {key!r}, which format.prompt_key names, "
        f"and {taskset.default_workflow_type or 'simple_workflow'} asks with it. Columns: "
        f"{', '.join(sorted(columns))}"
    ]


def _asks_with_prompt(taskset: TasksetConfig) -> bool:
    from trinity.common.workflows import AsyncSimpleWorkflow, SimpleWorkflow
    from trinity.extend import get_manager

    try:
        named = taskset.default_workflow_type or "simple_workflow"
        made_of = get_manager().load("workflow", named)
    except TrinityError:  # the check itself tells that there is none
        return False
    return isinstance(made_of, type) and issubclass(made_of, SimpleWorkflow | AsyncSimpleWorkflow)


def _file(config: Config, taskset: TasksetConfig) -> Path | None:
    """Return the file of a taskset if it is one that is read here."""
    path = config.folder / Path(taskset.path or "").expanduser()
    if path.suffix != ".jsonl" or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    return path


def _rows(config: Config, taskset: TasksetConfig) -> list[Row]:
    path = _file(config, taskset)
    if path is None:
        return []
    keys = taskset.format
    try:
        return read_rows(
            str(path),
            prompt_key=keys.prompt_key,
            answer_key=keys.response_key,
            split=taskset.split,
        )
    except TrinityError:  # the check itself tells what is wrong with it, and rows may have no keys
        return []


def _counter(config: Config) -> Callable[[str], int] | None:
    """Return what counts tokens by the model's own tokenizer; None: it is not on this disk."""
    from tokenizers import Tokenizer

    file = config.folder / Path(config.model.model_path or "").expanduser() / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001 -- tokenizers raises Exception itself; the run tells it
        return None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
