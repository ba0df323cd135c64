"""Is the model there, and are the datasets?"""

from __future__ import annotations

import json
import os
import re
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.config.model import is_hub_id, model_file
from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.buffer import ExperienceBufferConfig, TasksetConfig
    from trinity.common.config.config import Config
    from trinity.common.config.problem import Problem

_MODEL = "model.model_path"
_INPUT = "buffer.explorer_input"
_EXPERIENCES = "buffer.trainer_input.experience_buffer"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
_FORMATS = (".jsonl", ".json", ".parquet", ".csv")
_WORKFLOWS = "Write simple_workflow or math_workflow; others: trinity plugins list --kind workflow."


def path_problems(config: Config) -> list[Problem]:
    """Return what is wrong with the model and the datasets of a run of this mode."""
    problems = list(_name_problems(config))
    problems += [] if config.model.external_model.enable else _model_problems(config)
    problems += _train_input_problems(config) if config.mode == "train" else []
    problems += _auxiliary_problems(config) if config.has_trainer else []
    if config.mode in {"both", "explore"}:
        problems += _taskset_problems(config, "tasksets", config.buffer.explorer_input.tasksets)
    if config.mode in {"both", "explore", "bench"}:
        sets = config.buffer.explorer_input.eval_tasksets
        problems += _taskset_problems(config, "eval_tasksets", sets)
    return problems


def _name_problems(config: Config) -> Iterator[Problem]:
    """Yield a template that is not there, and names that lead out of ``checkpoint_root_dir``."""
    template = config.model.chat_template_path
    if template and not os.path.isfile(template):
        what = f"there is no file {template!r}{_seen_from(template)}"
        yield config.source.problem("model.chat_template_path", what, "Give a Jinja template.")
    for key in ("project", "group", "name"):
        value = getattr(config, key)
        if Path(value).is_absolute() or ".." in Path(value).parts:
            remedy = "Use a plain name; set checkpoint_root_dir instead."
            yield config.source.problem(key, f"{value!r} leads out of checkpoint_root_dir.", remedy)


def _model_problems(config: Config) -> Iterator[Problem]:
    path = config.model.model_path
    remedy = "Give a folder that save_pretrained wrote, or a Hugging Face id."
    if not path:
        yield config.source.problem(_MODEL, "is empty: there is no model to use.", remedy)
    elif os.path.isdir(path):
        missing = [] if model_file(path, "config.json") else ["config.json"]
        if not any(model_file(path, name) for name in _TOKENIZERS):
            missing.append("tokenizer")
        if missing:
            what = f"{path!r} is no model folder: it has no {' and no '.join(missing)}."
            yield config.source.problem(_MODEL, what, remedy)
    elif os.path.exists(path):
        yield config.source.problem(_MODEL, f"{path!r} is a file, no model folder.", remedy)
    elif model_file(path, "config.json") is None:  # nor is it in the cache of Hugging Face
        is_checkpoint = re.fullmatch(r"global_step_\d+", os.path.basename(path))
        if is_hub_id(path) and not (is_checkpoint or os.path.isdir(path.partition("/")[0])):
            yield _looked_up(config, _MODEL, path)
        else:
            remedy += f" For an id, first run: hf download {path}." if is_hub_id(path) else ""
            what = f"there is no folder {path!r}{_seen_from(path)}"
            yield config.source.problem(_MODEL, what, remedy)


def _train_input_problems(config: Config) -> Iterator[Problem]:
    buffer, problem = config.buffer.trainer_input.experience_buffer, config.source.problem
    assert buffer is not None, "resolve fills it in"
    if buffer.storage_type == "sql" or config.is_standalone:
        return  # the storage itself says it
    if buffer.storage_type == "queue":
        what = "is queue, but in mode train nothing writes to a queue of this process."
        yield problem(f"{_EXPERIENCES}.storage_type", what, "Use file, and give its path.")
    elif not buffer.path:
        yield problem(f"{_EXPERIENCES}.path", "is missing: mode train reads its rows from there.")
    else:
        yield from _dataset_problems(config, f"{_EXPERIENCES}.path", buffer)


def _auxiliary_problems(config: Config) -> Iterator[Problem]:
    for name, buffer in config.buffer.trainer_input.auxiliary_buffers.items():
        path = f"buffer.trainer_input.auxiliary_buffers.{name}"
        if buffer.storage_type in {"queue", "sql"}:
            what = f"is {buffer.storage_type}, but nothing writes to an auxiliary buffer."
            yield config.source.problem(
                f"{path}.storage_type", what, "Use file, and give its path."
            )
        elif not buffer.path:
            yield config.source.problem(f"{path}.path", "is missing: its rows are read from there.")
        else:
            yield from _dataset_problems(config, f"{path}.path", buffer)
    yield from _unknown_buffer(config)


def _unknown_buffer(config: Config) -> Iterator[Problem]:
    """Yield the expert's buffer that a strategy names and nobody gives."""
    known = config.buffer.trainer_input.auxiliary_buffers
    wanted = (config.algorithm.sample_strategy_args or {}).get("sft_dataset_name")
    if known and wanted is not None and wanted not in known:
        path = "algorithm.sample_strategy_args.sft_dataset_name"
        what = f"is {wanted!r}, which buffer.trainer_input.auxiliary_buffers does not have."
        yield config.source.problem(path, what, f"It has: {', '.join(known)}.")


def _taskset_problems(config: Config, name: str, sets: list[TasksetConfig]) -> Iterator[Problem]:
    needed = name == ("eval_tasksets" if config.mode == "bench" else "tasksets")
    problem = config.source.problem
    if needed and not sets:
        key = "eval_tasksets" if config.mode == "bench" else "taskset"
        what = f"is missing: mode {config.mode} has no tasks."
        yield problem(f"{_INPUT}.{key}", what, "Give its path and default_workflow_type.")
    for index, taskset in enumerate(sets):
        path = f"{_INPUT}.{name}.{index}"
        if not taskset.default_workflow_type and not taskset.format.workflow_key:
            what = "is missing: nothing says which workflow runs these tasks."
            yield problem(f"{path}.default_workflow_type", what, _WORKFLOWS, severity="open")
        if not taskset.path:
            yield problem(f"{path}.path", "is missing: nothing says where the rows are.")
        elif taskset.storage_type == "file":
            yield from _dataset_problems(config, f"{path}.path", taskset)


def _dataset_problems(
    config: Config, path: str, dataset: TasksetConfig | ExperienceBufferConfig
) -> Iterator[Problem]:
    place = dataset.path or ""
    file = Path(place)
    if os.path.isdir(place):  # False for what is no path; file.is_dir() raises
        if not any(file.iterdir()):
            yield config.source.problem(path, f"the folder {place!r} is empty.")
    elif os.path.isfile(place):
        yield from _file_problems(config, path, file)
    elif "://" in place or not is_hub_id(place) or file.suffix in _FORMATS:
        what = f"there is no file or folder {place!r}{_seen_from(place)}"
        yield config.source.problem(path, what, "Give a file, a folder or a Hugging Face id.")
    else:
        yield _looked_up(config, path, place)


def _file_problems(config: Config, path: str, file: Path) -> Iterator[Problem]:
    if file.suffix not in _FORMATS:
        what = f"{str(file)!r} is no dataset file."
        yield config.source.problem(path, what, f"Known endings: {', '.join(_FORMATS)}.")
    elif file.stat().st_size == 0:
        yield config.source.problem(path, f"{str(file)!r} is empty: it holds no rows.")
    elif file.suffix == ".jsonl":
        with file.open(encoding="utf-8", errors="replace") as lines:
            first = next((line for line in lines if line.strip()), "")
        if not first:
            yield config.source.problem(path, f"{str(file)!r} is empty: it holds no rows.")
        elif not _is_object(first):
            what = f"{str(file)!r} is no jsonl: its first line is no JSON object."
            yield config.source.problem(path, what)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _looked_up(config: Config, path: str, name: str) -> Problem:
    message = f"there is no folder {name!r} here: it is taken as a Hugging Face id."
    return config.source.problem(path, message, severity="notice")


def _seen_from(path: str) -> str:
    """Return the end of a sentence: where a path was looked for, and the nearest one there."""
    folder, name = os.path.split(path.rstrip("/"))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    here = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
    return f"{here}.{did_you_mean(name, glob('*', root_dir=folder or '.'))}"
