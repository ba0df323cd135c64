"""The tiny model that an engine is compared with, computed by transformers alone.

L prompt and reply   R reply   V vocabulary
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from trinity.common.models.pretrained import no_progress_bars

from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["PROMPT", "VOCAB", "greedy", "logprobs", "model", "model_folder", "tokenizer"]

VOCAB = 300
PROMPT = (5, 9, 17, 4)


@torch.no_grad()
def logprobs(model: PreTrainedModel, token_ids: tuple[int, ...], temperature: float) -> Tensor:
    """Return the log-probability of each token after the prompt, ``[R]``."""
    ids = torch.tensor([[*PROMPT, *token_ids]])
    logprobs_LV = (model(ids).logits[0].float() / temperature).log_softmax(-1)
    places = torch.arange(len(PROMPT) - 1, ids.shape[1] - 1)
    return logprobs_LV[places, ids[0, len(PROMPT) :]]


@torch.no_grad()
def greedy(model: PreTrainedModel, count: int) -> list[int]:
    """Return the likeliest tokens after the prompt, one after the other."""
    ids = list(PROMPT)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


@cache
def model(seed: int = 0) -> PreTrainedModel:
    """Return the model of a seed."""
    from transformers import AutoModelForCausalLM

    with no_progress_bars():
        return AutoModelForCausalLM.from_pretrained(model_folder(seed)).eval()


@cache
def tokenizer() -> Any:  # Any: of transformers
    """Return its tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder(0))


@cache
def model_folder(seed: int) -> Path:
    """Return the folder of the model of a seed; it is gone when the process ends."""
    with no_progress_bars():
        return make_tiny_model(
            Path(_held_folder().name) / f"model-{seed}",
            vocab=VOCAB,
            hidden=64,  # heads of 32, which engines for CPUs compute too
            layers=1,
            heads=2,
            init_std=0.5,
            seed=seed,
        )


@cache
def _held_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="trinity-engine-")  # gone when the process ends
