"""Which model a word of the command line names: of a checkpoint, of a run, or a plain one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from trinity.common.config.kept import kept_settings
from trinity.common.config.model import is_hub_id, model_file
from trinity.errors import ConfigError
from trinity.runtime.record.checkpoint import Checkpoint, CheckpointStore
from trinity.runtime.record.rundir import with_stages

from trinity_lab.run_folders import runs_inside

if TYPE_CHECKING:
    from collections.abc import Sequence

EXTERNAL = "api:"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model, and the run that it came from.

    Attributes:
        label: names it in a table.
        path: what ``model.model_path`` takes: a folder, or a Hugging Face id.
        checkpoint: that it is part of; None: it is a plain model.
        run: the directory of its run; None: likewise.
        settings: of that run, by section; empty: likewise (Any: yaml).
        is_external: ``path`` is the model's name at an OpenAI-compatible API.
    """

    label: str
    path: str
    checkpoint: Checkpoint | None
    run: Path | None
    settings: dict[str, Any]
    is_external: bool = False


def find_model(word: str) -> Model:
    """Return the model that a word names.

    Args:
        word: a folder ``global_step_N``, a run directory (its newest checkpoint), a model's
            folder, or a Hugging Face id.

    Raises:
        ConfigError: the folder holds no model.
    """
    path = Path(word)
    if not path.exists():
        return _plain(word)
    path = path.absolute()
    checkpoint = _checkpoint_of(path)
    if checkpoint is not None:
        run = checkpoint.path.parent
        settings = _settings(run)
        return Model(
            label="/".join([*_own_folders(run, settings), checkpoint.path.name]),
            path=str(checkpoint.huggingface),
            checkpoint=checkpoint,
            run=run,
            settings=settings,
        )
    if not (path / "config.json").exists():
        raise ConfigError(
            f"{word} holds no model: it is neither a checkpoint (global_step_N), nor a run "
            f"directory with one, nor a folder with config.json.{runs_inside(path)}"
        )
    return Model(label=path.name, path=str(path), checkpoint=None, run=None, settings={})


def find_models(words: Sequence[str], *, has_external: bool = False) -> list[Model]:
    """Return the models that words of a command name; no two different ones have the same label.

    Args:
        words: each as :func:`find_model` takes it.
        has_external: ``api:NAME`` is a model behind an OpenAI-compatible API.

    Raises:
        ConfigError: a folder holds no model, or is not there.
    """
    found = []
    for word in words:
        name = word.removeprefix(EXTERNAL)
        if has_external and name != word:
            found.append(replace(_plain(name), label=word, is_external=True))
            continue
        _refuse_lost_folder(word)
        found.append(find_model(word))
    return _told_apart(found)


def taken_as_ids(models: Sequence[Model]) -> str:
    """Return a line for each model that is no folder and not in the cache of Hugging Face."""
    names = [
        one.path
        for one in models
        if not (one.is_external or Path(one.path).exists() or model_file(one.path, "config.json"))
    ]
    return "".join(
        f"\n  there is no folder {name!r} here: it is taken as a Hugging Face id."
        for name in dict.fromkeys(names)
    )


def _plain(name: str) -> Model:
    return Model(label=name, path=name, checkpoint=None, run=None, settings={})


def _refuse_lost_folder(word: str) -> None:
    """Hold that a word that names no folder may be a Hugging Face id: ``NAME``, ``OWNER/NAME``.

    Raises:
        ConfigError: it has more parts, is written as a path, is called as a checkpoint, or its
            first part is a folder; and it is not in the cache of Hugging Face.
    """
    path = Path(word)
    is_checkpoint = re.fullmatch(r"global_step_\d+", path.name) is not None
    has_folder = path.parent != Path() and path.parent.is_dir()
    is_path = len(path.parts) > 2 or word.startswith((".", "~", "/")) or word.endswith("/")
    if path.exists() or not (is_checkpoint or has_folder or is_path):
        return
    if model_file(word, "config.json") is not None:
        return
    there = CheckpointStore(path.parent).all()
    names = ", ".join(one.path.name for one in there)
    beside = f" Beside it there are: {names}." if there else runs_inside(path.parent)
    fetch = f" For a Hugging Face id, first run: hf download {word}." if is_hub_id(word) else ""
    raise ConfigError(f"there is no folder {path}, seen from {Path.cwd()}.{beside or fetch}")


def _told_apart(models: list[Model]) -> list[Model]:
    """Return the models; of different ones with one label, each with a folder more in its label."""
    paths: dict[str, set[str]] = {}
    for one in models:
        paths.setdefault(one.label, set()).add(one.path)
    longer = [_with_longer_label(one) if len(paths[one.label]) > 1 else one for one in models]
    return models if longer == models else _told_apart(longer)


def _with_longer_label(model: Model) -> Model:
    folder = model.checkpoint.path if model.checkpoint is not None else Path(model.path)
    count = len(Path(model.label).parts) + 1
    return replace(model, label="/".join(folder.parts[-count:]))


def _own_folders(run: Path, settings: dict[str, Any]) -> tuple[str, ...]:
    """Return the last folder of a run's path, or the last two of a stage (RUN/STAGE)."""
    count = 1 + str(settings.get("name", "")).count("/")
    return run.parts[-count:]


def _checkpoint_of(path: Path) -> Checkpoint | None:
    """Return the checkpoint that a folder is, is part of, or has the newest of."""
    for folder in (path, *list(path.parents)[:2]):
        found = [one for one in CheckpointStore(folder.parent).all() if one.path == folder]
        if found:
            return found[0]
    return CheckpointStore(with_stages(path)[-1]).latest()


def _settings(run: Path) -> dict[str, Any]:
    try:
        read = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{run / 'config.yaml'} cannot be read: {error}.") from error
    settings: dict[str, Any] = kept_settings(read, run) if isinstance(read, dict) else {}
    return settings
