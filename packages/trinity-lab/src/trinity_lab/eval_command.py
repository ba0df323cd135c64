"""``trinity eval``: several models on one file of tasks."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.cli.output import echo_columns, plain
from trinity.common.secrets import MASK
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config

    from trinity_lab.models import Model
    from trinity_lab.pass_at_k import Score

_FROM_RUN = ("model", "explorer")  # sections of a checkpoint's run that its evaluation uses


def evaluate(  # noqa: PLR0913, PLR0917 -- the options of a command
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...",
            help="Checkpoints, run directories (their newest), model folders, Hugging Face ids.",
        ),
    ],
    data: Annotated[Path, typer.Option("--data", help="The file of tasks.")],
    workflow: Annotated[
        str, typer.Option(help="Default: that of the checkpoint's run, else simple_workflow.")
    ] = "",
    reward: Annotated[str, typer.Option(help="Default: that of the checkpoint's run.")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Rollouts of each task.")] = 1,
    passes_at: Annotated[
        float, typer.Option(help="A rollout passes with at least this reward.")
    ] = 1.0,
    to: Annotated[Path, typer.Option(help="Root folder of the run directories.")] = Path(
        "checkpoints"
    ),
    local: Annotated[bool, typer.Option("--local", help="Run without Ray.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a value of the run. Repeatable."),
    ] = None,
    plugin_dir: Annotated[
        list[Path] | None, typer.Option("--plugin-dir", help="Load a folder's plugins. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate models on a file: mean@k and pass@k with 95 % intervals over tasks.

    Each model gets a run directory in TO/eval (default: checkpoints/eval). `trinity view` and
    `trinity compare` read it.
    """
    from trinity.extend import get_manager, set_manager

    from trinity_lab.models import find_model

    set_manager(get_manager().narrowed(plugin_dirs=plugin_dir or []))
    found = [find_model(word) for word in models]
    taskset = _taskset(found, data=data, workflow=workflow, reward=reward, repeat=repeat)
    rows = []
    for name, model in zip(_names(found, data), found, strict=True):
        config = _config(model, taskset, name=name, root=to, overrides=settings or [])
        directory = _bench(config, local=local)
        rows.append((model, directory, _scores(directory, repeat=repeat, passes_at=passes_at)))
    if as_json:
        typer.echo(json.dumps({"schema": 1, "models": [_json(*row) for row in rows]}, indent=2))
        return
    _echo(rows, data=data, passes_at=passes_at)


def _taskset(
    models: Sequence[Model], *, data: Path, workflow: str, reward: str, repeat: int
) -> dict[str, Any]:  # Any: yaml
    """Return the evaluation set, with what is not given as the first run of the models has it."""
    if not data.exists():
        raise ConfigError(f"there is no file {data}. Relative paths count from {Path.cwd()}.")
    given = next((one.settings["buffer"]["explorer_input"] for one in models if one.settings), {})
    sets = [*given.get("eval_tasksets", []), *given.get("tasksets", []), given.get("taskset")]
    base = next((one for one in sets if one), {})
    workflow = workflow or base.get("default_workflow_type") or "simple_workflow"
    reward = reward or base.get("default_reward_fn_type") or ""
    kept = {
        key: base[key]
        for key in ("format", "workflow_args", "reward_fn_args", "rollout_args")
        if base.get(key)
    }
    kept.get("rollout_args", {}).pop("n", None)
    return {
        **kept,
        "name": data.stem,
        "path": str(data.absolute()),
        "default_workflow_type": workflow,
        **({"default_reward_fn_type": reward} if reward else {}),
        "repeat_times": repeat,
    }


def _config(
    model: Model, taskset: dict[str, Any], *, name: str, root: Path, overrides: Sequence[str]
) -> Config:
    """Return the configuration of one evaluation.

    Raises:
        ConfigError: an override does not fit.
    """
    import yaml
    from trinity.common.config.explanation import load_or_explain

    sections = {key: dict(model.settings.get(key, {})) for key in _FROM_RUN}
    sections["model"] |= {"model_path": model.path, "lora_configs": None}
    given = sections["explorer"]
    rollout = dict(given.get("rollout_model") or {})
    sections["explorer"] = {
        "rollout_model": rollout | {"model_path": None},
        **{
            key: sections["explorer"][key]
            for key in ("max_timeout",)
            if key in sections["explorer"]
        },
    }
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
        file = Path(folder) / "eval.yaml"
        file.write_text(yaml.safe_dump(_unmasked(config)), encoding="utf-8")
        return load_or_explain(file, overrides=overrides)


def _unmasked(value: Any) -> Any:  # Any: yaml
    """Return the same without the settings that a run keeps masked: an override gives them."""
    if isinstance(value, dict):
        return {key: _unmasked(part) for key, part in value.items() if part != MASK}
    return [_unmasked(part) for part in value] if isinstance(value, list) else value


def _names(models: Sequence[Model], data: Path) -> list[str]:
    """Return a folder's name for each model; those of one label are numbered."""
    names: list[str] = []
    for model in models:
        name = f"{data.stem}-{model.label.replace('/', '-')}"
        count = sum(one == name or one.startswith(f"{name}-again") for one in names)
        names.append(f"{name}-again{count}" if count else name)
    return names


def _bench(config: Config, *, local: bool) -> Path:
    from rich.console import Console
    from trinity.runtime.run import run

    directory: Path = run(config, local=local, console=Console(stderr=True)).directory
    return directory


def _scores(directory: Path, *, repeat: int, passes_at: float) -> list[Score]:
    from trinity.runtime.record.sample_files import evaluation_files

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


def _echo(rows: Sequence[tuple[Model, Path, list[Score]]], *, data: Path, passes_at: float) -> None:
    typer.echo(
        f"{data}: 95 % intervals, bootstrap over tasks; passes with a reward of {passes_at:g}\n"
    )
    names = [score.name for score in rows[0][2]]
    table = [[plain(model.label), *map(_shown, scores)] for model, _, scores in rows]
    echo_columns(["model", *names], table)
    typer.echo("\nrollouts: trinity view " + " ".join(str(directory) for _, directory, _ in rows))


def _shown(score: Score) -> str:
    if score.interval is None:
        return f"{score.value:.3f}"
    return f"{score.value:.3f} ({score.interval.low:.3f} to {score.interval.high:.3f})"


def _json(model: Model, directory: Path, scores: Sequence[Score]) -> dict[str, object]:
    return {
        "model": model.label,
        "path": model.path,
        "directory": str(directory),
        "scores": {score.name: asdict(score) for score in scores},
    }
