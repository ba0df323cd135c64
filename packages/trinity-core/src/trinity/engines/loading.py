"""Loads the model that an engine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trinity.common.models.pretrained import load_pretrained, no_progress_bars
from trinity.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_DTYPES = {
    "auto": "auto",
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(
    model_path: str, *, dtype: str, device: torch.device, trust_remote_code: bool
) -> PreTrainedModel:
    """Return the model in evaluation mode, all of its weights read from safetensors.

    Raises:
        ModelError: the dtype is unknown, the model cannot be read, or weights are missing.
    """
    if dtype not in _DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown; use one of {', '.join(_DTYPES)}.")
    from transformers import AutoModelForCausalLM

    with no_progress_bars():
        module, report = load_pretrained(
            AutoModelForCausalLM.from_pretrained,
            model_path,
            dtype=_DTYPES[dtype],
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the model {model_path!r} lacks {len(missing)} weights, {missing[0]!r} among them. "
            f"They would be random: write the folder again with save_pretrained."
        )
    return module.to(device).eval().requires_grad_(requires_grad=False)


def end_tokens(module: PreTrainedModel, model_path: str) -> Tensor:
    """Return which tokens end a reply, ``[V]``.

    As the generation config names them, else the model's config, else the tokenizer.
    """
    vocab = module.get_output_embeddings().weight.shape[0]
    is_end_V = torch.zeros(vocab, dtype=torch.bool, device=module.device)
    is_end_V[[token for token in _end_ids(module, model_path) if token < vocab]] = True
    return is_end_V


def _end_ids(module: PreTrainedModel, model_path: str) -> list[int]:
    for config in (module.generation_config, module.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return [ids] if isinstance(ids, int) else list(ids)
    from transformers import AutoTokenizer

    try:
        token = load_pretrained(AutoTokenizer.from_pretrained, model_path).eos_token_id
    except ModelError:  # a folder without a tokenizer: replies end by their length
        return []
    return [] if token is None else [token]


def pick_device(device: str | None) -> torch.device:
    """Return the device; None: the GPU if there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
