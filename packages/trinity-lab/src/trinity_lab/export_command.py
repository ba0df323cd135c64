"""``trinity export``: a checkpoint's model as a folder that any tool loads."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity_lab.models import Model

_WEIGHTS = ("*.safetensors", "*.bin")


def export(
    checkpoint: Annotated[
        Path, typer.Argument(help="A folder global_step_N, or a run directory: its newest one.")
    ],
    to: Annotated[Path, typer.Option("--to", help="The folder to write; it must be empty.")],
    license_name: Annotated[
        str,
        typer.Option("--license", help="Licence, such as apache-2.0 or mit, for the model card."),
    ] = "",
    adapter: Annotated[
        str, typer.Option("--adapter", help="Of a run of several agents: whose adapter to merge.")
    ] = "",
    push: Annotated[
        str,
        typer.Option(
            metavar="OWNER/NAME",
            help="Upload to this repository of the Hugging Face Hub; a new one is private.",
        ),
    ] = "",
) -> None:
    """Write a trained model: merged weights, tokenizer, chat template and model card.

    LoRA adapters are merged into the weights. --push needs `hf auth login` or HF_TOKEN.
    """
    from trinity.runtime.record.checkpoint import check_model

    from trinity_lab.merged_adapter import check_adapter, write_merged
    from trinity_lab.model_card import UNKNOWN, card_of
    from trinity_lab.models import find_models

    (model,) = find_models([str(checkpoint)])
    if model.checkpoint is None:
        raise ConfigError(f"{checkpoint} is no checkpoint of a run. Name a folder global_step_N.")
    check_model(model.checkpoint.huggingface)
    check_adapter(model, adapter)
    _check_empty(to)
    if adapter:
        write_merged(model, adapter, to)
    else:
        _check_weights(model.checkpoint.huggingface)
        shutil.copytree(model.checkpoint.huggingface, to, dirs_exist_ok=True)
    serve = f"vllm serve {shlex.quote(push or str(to))}"
    card = card_of(model, name=push or to.name, license_name=license_name or UNKNOWN, serve=serve)
    (to / "README.md").write_text(card, encoding="utf-8")
    typer.echo(f"model {to} (train step {model.checkpoint.step} of {model.run})")
    if better := _better_than(model):
        typer.echo(f"note: {better}")
    if not license_name:
        typer.echo("note: the licence is unknown; --license sets it in README.md")
    if push:
        _push(to, push)
    typer.echo(f"serve it: {serve}")


def _check_weights(folder: Path) -> None:
    """Hold that a checkpoint has the weights itself."""
    if not any(one for end in _WEIGHTS for one in folder.glob(end)):
        raise ConfigError(
            f"{folder} holds no weights: a run with model.tinker leaves them at its service. "
            f"Download the adapter there; {folder.parent / 'tinker.json'} has its path."
        )


def _better_than(model: Model) -> str:
    """Return which checkpoint the run kept as its best, if that is another one."""
    from trinity.runtime.record.checkpoint import CheckpointStore
    from trinity.runtime.record.progress import read_progress

    assert model.checkpoint is not None
    assert model.run is not None
    newest = CheckpointStore(model.run).latest() or model.checkpoint
    progress = read_progress(newest.read_state())
    if not progress.best or progress.best[0][1] == model.checkpoint.step:
        return ""
    value, step = progress.best[0]
    return f"the best checkpoint by {progress.best_metric} is global_step_{step} ({value:.4g})"


def _check_empty(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"{to} is not empty. Name a new folder.")


def _push(folder: Path, repository: str) -> None:
    """Upload the folder.

    Raises:
        ConfigError: the hub refuses it, or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi()
    try:
        url = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder)
    except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as error:
        raise ConfigError(
            f"{folder} is written and could not be uploaded to {repository}: "
            f"{str(error).strip()}. Log in with `hf auth login`, then `hf upload {repository} "
            f"{folder}`."
        ) from error
    typer.echo(f"uploaded to {url}")
