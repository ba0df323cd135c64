"""``trinity eval``: several models on one file of tasks."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.cli.output import echo_columns, plain
from trinity.common.secret_names import MASK
from trinity.errors import ConfigError

from trinity_lab.external.configure import use_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trinity.common.config import Config

    from trinity_lab.models import Model
    from trinity_lab.pass_at_k import Score

    _Row = tuple[Model, Path | None, list[Score]]

_FROM_RUN = ("model", "explorer")  # sections of a checkpoint's run that its evaluation uses
_SAMPLING = (  # keys of `model` that a model without a run shares with the others
    *("temperature", "top_p", "top_k", "max_model_len", "max_prompt_tokens", "max_response_tokens"),
    *("min_response_tokens", "enable_prompt_truncation", "repetition_penalty", "enable_thinking"),
    *("custom_chat_template", "chat_template_path"),
)
_OF_WORKFLOWS = ("enable_openai_api", "enable_history")  # keys of an engine that they need
_FILE = "eval.yaml"
_WIDTH = 80  # of a terminal
_AS_IN_RUN = (
    "What is not given by --workflow, --reward and --set is as in the first run of these models "
    "that has tasks."
)
_NO_RUN = (
    "None of these models is a checkpoint of a run that says how to evaluate it. Name the reward "
    "with --reward, a workflow with --workflow, and the columns of the file with --set "
    "buffer.explorer_input.eval_tasksets.0.format.prompt_key=COLUMN and ...response_key=COLUMN."
)

_Models = Annotated[
    list[str],
    typer.Argument(
        metavar="CHECKPOINT...",
        help="Checkpoints, run directories (their newest), model folders, Hugging Face ids, "
        "api:NAME (a model behind the OpenAI-compatible API at OPENAI_BASE_URL).",
    ),
]
_Tasks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A benchmark of lm-eval, such as gsm8k. Repeatable."),
]
_TaskFiles = Annotated[Path | None, typer.Option(help="A folder with task files of lm-eval.")]
_Limit = Annotated[int | None, typer.Option(min=1, help="Rows of each benchmark.")]
_PassesAt = Annotated[float, typer.Option(help="A rollout passes with at least this reward.")]
_To = Annotated[Path, typer.Option(help="Root folder of the run directories.")]
_Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Set a value of the run. Repeatable.")
]
_PluginDirs = Annotated[
    list[Path] | None, typer.Option("--plugin-dir", help="Load a folder's plugins. Repeatable.")
]
_Chat = Annotated[
    bool, typer.Option("--chat", help="Ask benchmarks through the model's chat template.")
]


def evaluate(  # noqa: PLR0913, PLR0917 -- the options of a command
    models: _Models,
    data: Annotated[Path | None, typer.Option("--data", help="The file of tasks.")] = None,
    tasks: _Tasks = None,
    task_files: _TaskFiles = None,
    limit: _Limit = None,
    chat: _Chat = False,
    workflow: Annotated[
        str, typer.Option(help="Default: that of the checkpoint's run, else simple_workflow.")
    ] = "",
    reward: Annotated[str, typer.Option(help="Default: that of the checkpoint's run.")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Rollouts of each task.")] = 1,
    passes_at: _PassesAt = 1.0,
    to: _To = Path("checkpoints"),
    local: Annotated[bool, typer.Option("--local", help="Run without Ray.")] = False,
    settings: _Settings = None,
    plugin_dir: _PluginDirs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate models on a file, or on benchmarks, with 95 % intervals.

    On a file: mean@k and pass@k. Each model gets a run directory in TO/eval (default:
    checkpoints/eval). `trinity view` and `trinity compare` read it.
    """
    from trinity.extend import get_manager, set_manager

    from trinity_lab.harness import Benchmarks
    from trinity_lab.merged_adapter import refuse_agents
    from trinity_lab.models import find_models

    if data is None and not tasks:
        raise typer.BadParameter("name a file with --data, or a benchmark with --tasks")
    set_manager(get_manager().narrowed(plugin_dirs=plugin_dir or []))
    found = find_models(models, has_external=True)
    for model in found:
        refuse_agents(model)
        if model.is_external and tasks:
            raise typer.BadParameter(f"--tasks: lm-eval cannot ask {model.label}; use --data")
    benchmarks = Benchmarks(tasks=tasks or [], include=task_files, limit=limit, has_chat=chat)
    benchmarks.check()
    rows: list[_Row] = [(model, None, []) for model in found]
    if data is not None:
        taskset = _taskset(found, data=data, workflow=workflow, reward=reward, repeat=repeat)
        for place, name in enumerate(_names(found, data.stem)):
            model = _like_others(found[place], found)
            named = partial(_config, model, taskset, root=to, overrides=settings or [])
            with _explained(found):
                directory = _bench(named, name, local=local)
            scores = _scores(directory, repeat=repeat, passes_at=passes_at)
            rows[place] = (found[place], directory, scores)
    for (model, _, scores), name in zip(rows, _names(found, "lm-eval"), strict=True):
        scores.extend(benchmarks.scores(model.path, to=to / "eval" / name))
    if as_json:
        typer.echo(json.dumps({"schema": 1, "models": [_json(*row) for row in rows]}, indent=2))
        return
    _echo(rows, heading=_heading(data, tasks or [], passes_at))


def _taskset(
    models: Sequence[Model], *, data: Path, workflow: str, reward: str, repeat: int
) -> dict[str, Any]:  # Any: yaml
    """Return the evaluation set, with what is not given as the first run of the models has it."""
    if not data.exists():
        raise ConfigError(f"there is no file {data}. Relative paths count from {Path.cwd()}.")
    base = next((one for model in models for one in _tasksets(model)), {})
    workflow = workflow or base.get("default_workflow_type") or "simple_workflow"
    reward = reward or base.get("default_reward_fn_type") or ""
    kept = {
        key: base[key]
        for key in ("format", "workflow_args", "reward_fn_args", "rollout_args")
        if base.get(key)
    }
    if "rollout_args" in kept:  # `logprobs: 0` is the default, and some engines warn of the key
        sampling = kept["rollout_args"]
        unset = {"n"} if sampling.get("logprobs") else {"n", "logprobs"}
        kept["rollout_args"] = {key: sampling[key] for key in sampling if key not in unset}
    return {
        **kept,
        "name": data.stem,
        "path": str(data.absolute()),
        "default_workflow_type": workflow,
        **({"default_reward_fn_type": reward} if reward else {}),
        "repeat_times": repeat,
    }


def _tasksets(model: Model) -> list[dict[str, Any]]:  # Any: yaml
    """Return the task sets of a model's run, those of evaluations first; a run may have none."""
    given = model.settings.get("buffer", {}).get("explorer_input") or {}
    sets = [*given.get("eval_tasksets", []), *given.get("tasksets", []), given.get("taskset")]
    return [one for one in sets if one]


def _like_others(model: Model, models: Sequence[Model]) -> Model:
    """Return the model; one without a run of its own samples as the first run with tasks does."""
    runs = [one.settings for one in models if one.settings]
    first = next((one.settings for one in models if _tasksets(one)), runs[0] if runs else {})
    if model.settings or not first:
        return model
    kept = {name: value for name, value in first["model"].items() if name in _SAMPLING}
    settings = {"model": kept, "explorer": first.get("explorer", {}), "seed": first.get("seed", 42)}
    return replace(model, settings=settings)


@contextmanager
def _explained(models: Sequence[Model]) -> Iterator[None]:
    """Name the options of this command, not the file that it wrote for the run, in an error."""
    from trinity_lab.models import taken_as_ids

    rest = _AS_IN_RUN if any(map(_tasksets, models)) else _NO_RUN
    try:
        yield
    except ConfigError as error:
        text = re.sub(rf"\S*/{_FILE}(:\d+)?", "the evaluation", str(error))
        if text == str(error):
            raise
        raise ConfigError(f"{text}\n  {rest}{taken_as_ids(models)}") from error


def _config(
    model: Model, taskset: dict[str, Any], name: str, *, root: Path, overrides: Sequence[str]
) -> Config:
    """Return the configuration of one evaluation.

    Raises:
        ConfigError: an override does not fit.
    """
    import yaml
    from trinity.common.config.explanation import load_or_explain

    sections = {key: dict(model.settings.get(key, {})) for key in _FROM_RUN}
    sections["model"] |= {"model_path": model.path, "lora_configs": None}
    sections["model"].pop("critic_model_path", None)  # nobody trains
    given = sections["explorer"]
    rollout = dict(given.get("rollout_model") or {})
    sections["explorer"] = {
        "rollout_model": rollout | {"model_path": None},
        **({"max_timeout": given["max_timeout"]} if "max_timeout" in given else {}),
    }
    if model.is_external:
        sections["model"]["external_model"] = {"enable": True}
        kept = {key: rollout[key] for key in _OF_WORKFLOWS if key in rollout}
        sections["explorer"]["rollout_model"] = kept
    config = {
        **sections,
        "mode": "bench",
        "project": "eval",
        "name": name,
        "checkpoint_root_dir": str(root),
        "seed": model.settings.get("seed", 42),
        "buffer": {"explorer_input": {"eval_tasksets": [taskset]}},
        "monitor": {"monitor_type": "jsonl"},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        file.write_text(yaml.safe_dump(_unmasked(config)), encoding="utf-8")
        loaded = load_or_explain(file, overrides=overrides)
    if model.is_external:
        use_bytes(loaded)  # as the run does: what was kept of the last one is compared with it
    return loaded


def _unmasked(value: Any) -> Any:  # Any: yaml
    """Return the same without the settings that a run keeps masked: an override gives them."""
    if isinstance(value, dict):
        return {key: _unmasked(part) for key, part in value.items() if part != MASK}
    return [_unmasked(part) for part in value] if isinstance(value, list) else value


def _names(models: Sequence[Model], prefix: str) -> list[str]:
    """Return a folder's name for each model; those of one label are numbered."""
    names: list[str] = []
    for model in models:
        name = f"{prefix}-{re.sub('[/:]', '-', model.label)}"
        count = sum(one == name or one.startswith(f"{name}-again") for one in names)
        names.append(f"{name}-again{count}" if count else name)
    return names


def _bench(config_named: Callable[[str], Config], name: str, *, local: bool) -> Path:
    from rich.console import Console
    from trinity.runtime.run import run

    from trinity_lab.evaluation_folder import with_own_folder

    config = with_own_folder(config_named, name)
    directory: Path = run(config, local=local, console=Console(stderr=True)).directory
    return directory


def _scores(directory: Path, *, repeat: int, passes_at: float) -> list[Score]:
    from trinity.runtime.record.evaluation_samples import evaluation_files

    from trinity_lab.outcomes import rewards_of_tasks
    from trinity_lab.pass_at_k import scores_of

    files = [one for one in evaluation_files(directory) if one.is_bench]
    rewards = rewards_of_tasks(files[-1]) if files else {}
    if not rewards:
        raise ConfigError(
            f"{directory} has no rewards: its rollouts failed, have no reward (name one with "
            f"--reward), or were not kept (buffer.record_samples, buffer.max_samples_gb)."
        )
    return scores_of(rewards, num_repeats=repeat, passes_at=passes_at)


def _heading(data: Path | None, tasks: Sequence[str], passes_at: float) -> str:
    file = f"bootstrap over tasks; passes with a reward of {passes_at:g}"
    told = [f"{data}: 95 % intervals, {file}"] if data is not None else []
    if tasks:
        told.append(f"{', '.join(tasks)} (lm-eval): 95 % intervals, 1.96 standard errors")
    return "\n".join(told)


def _echo(rows: Sequence[_Row], *, heading: str) -> None:
    typer.echo(f"{heading}\n")
    headers, table = _table(rows)
    if sum(max(map(len, column)) + 2 for column in zip(headers, *table, strict=True)) - 2 > _WIDTH:
        headers, table = _long_table(rows)
    echo_columns(headers, table)
    directories = [str(directory) for _, directory, _ in rows if directory is not None]
    if directories:
        typer.echo("\nrollouts: trinity view " + " ".join(directories))


def _table(rows: Sequence[_Row]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and a row for each model, a column for each score."""
    names = list(dict.fromkeys(score.name for _, _, scores in rows for score in scores))
    table = []
    for model, _, scores in rows:
        known = {score.name: " ".join(_shown(score)).strip() for score in scores}
        table.append([plain(model.label), *(known.get(name, "-") for name in names)])
    return ["model", *map(plain, names)], table


def _long_table(rows: Sequence[_Row]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and a row for each score of each model, those of one score together."""
    names = dict.fromkeys(score.name for _, _, scores in rows for score in scores)
    table = [
        [plain(name), plain(model.label), *_shown(score)]
        for name in names
        for model, _, scores in rows
        for score in scores
        if score.name == name
    ]
    return ["score", "model", "value", "interval"], table


def _shown(score: Score) -> tuple[str, str]:
    """Return the value and its interval; "" where there is none."""
    if score.interval is None:
        return f"{score.value:.3f}", ""
    return f"{score.value:.3f}", f"({score.interval.low:.3f} to {score.interval.high:.3f})"


def _json(model: Model, directory: Path | None, scores: Sequence[Score]) -> dict[str, object]:
    return {
        "model": model.label,
        "path": model.path,
        "directory": None if directory is None else str(directory),
        "scores": {score.name: asdict(score) for score in scores},
    }
