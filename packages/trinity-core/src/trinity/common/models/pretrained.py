"""Loads a part of a model from a folder or a Hugging Face id, from the cache where it is there."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trinity.common.config.memory import published_settings
from trinity.common.config.model import model_file
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.common.config.model import ModelConfig

_Part = TypeVar("_Part")
_HUB_TIMEOUT_S = 20.0


def load_pretrained(loader: Callable[..., _Part], model_path: str, **options: Any) -> _Part:
    """Return what ``loader`` (a ``from_pretrained`` of transformers) makes of the model.

    An id is looked up in the cache first, and downloaded only when it is not there and
    ``HF_HUB_OFFLINE`` does not forbid it.

    Args:
        loader: takes the path or id, ``local_files_only`` and the options.
        model_path: a folder with a ``config.json``, or an id as ``Qwen/Qwen3-0.6B``.
        **options: passed on (Any: the loader's own).

    Raises:
        ModelError: there is no such model, or it cannot be read.
    """
    try:
        return _found(loader, model_path, **options)
    except ModelError:
        _hub_error.cache_clear()  # who tries again asks again
        raise


def fetch_settings(model: ModelConfig) -> str:
    """Download the ``config.json`` of a model that is not here, if it is not known by its name.

    Return why it cannot be had, or "". Its loader does not ask again a hub that is out of reach.
    """
    _hub_error.cache_clear()  # of a run before, in a notebook that was offline
    path = model.model_path
    is_known = "max_position_embeddings" in published_settings(path)
    if model.external_model.enable or is_known or model_file(path, "config.json") is not None:
        return ""
    from huggingface_hub import hf_hub_download

    try:
        with no_progress_bars():
            _found(partial(hf_hub_download, filename="config.json"), path)
    except Exception as error:  # noqa: BLE001 -- the HTTP library has errors of its own
        return str(error)
    return ""


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers' progress bars out of what a person sees."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _found(loader: Callable[..., _Part], model_path: str, **options: Any) -> _Part:
    folder = Path(model_path).expanduser()
    if folder.exists() or _looks_like_path(model_path):
        _check_folder(folder, model_path)
        return _loaded(loader, str(folder), local_files_only=True, **options)
    from huggingface_hub import constants

    try:
        return _loaded(loader, model_path, local_files_only=True, **options)
    except ModelError:
        if constants.HF_HUB_OFFLINE:
            raise
    if error := _hub_error(model_path):
        raise ModelError(
            f"the model {model_path!r} is neither a folder here nor in the cache, and the Hugging "
            f"Face hub cannot be reached: {error}. Give model.model_path a folder written by "
            f"save_pretrained, or download the model first: hf download {model_path}."
        ) from error
    return _loaded(loader, model_path, local_files_only=False, **options)


def _loaded(loader: Callable[..., _Part], model_path: str, **options: Any) -> _Part:
    from safetensors import SafetensorError

    try:
        return loader(model_path, **options)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"the model {model_path!r} cannot be loaded: {reason} "
            f"Give model.model_path a folder written by save_pretrained, or an id of the Hugging "
            f"Face hub that is in the cache or can be downloaded."
        ) from error


def _check_folder(folder: Path, model_path: str) -> None:
    if not folder.is_dir():
        what = "is a file, not a model folder" if folder.exists() else "does not exist"
        raise ModelError(
            f"model_path {model_path!r} {what}. "
            f"Give the folder of a Hugging Face model, or an id as 'Qwen/Qwen3-0.6B'."
        )
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"model_path {model_path!r} is no model folder: it holds no config.json. "
            f"Give the folder that save_pretrained wrote (a checkpoint's is named huggingface)."
        )


def _looks_like_path(model_path: str) -> bool:
    return model_path.startswith(("/", ".", "~")) or model_path.count("/") > 1 or not model_path


@cache
def _hub_error(model_id: str) -> Exception | None:
    """Return why the hub cannot be reached, None if it can; its library would try for minutes.

    What the hub answers is left to the loader, which tells it.
    """
    from huggingface_hub import model_info
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with suppress(HfHubHTTPError):
            model_info(model_id, timeout=_HUB_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 -- of whichever HTTP library the hub uses
        return error
    return None
