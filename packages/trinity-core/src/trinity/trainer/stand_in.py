"""Build a small model of the same kind as a large one, to try on it what follows from the kind.

A model that is spread over the ranks is whole on none of them. How rows that begin alike may be
computed as one, and whether attention can be shared, depend on its layers' kinds alone.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from trinity.errors import NotSupportedYetError
from trinity.trainer.policy import Policy, dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_TOKENS = 16  # of its vocabulary: the trials use the first eight
MIN_LAYERS = 2
SPREAD = 1.6  # of a random weight, by the root of the width: attention then differs by token


def stand_in(
    config: Any,
    *,
    precision: str,
    is_trained: bool,
    device: torch.device,
    trust_remote_code: bool = False,
) -> Policy:
    """Return a policy with random weights, the same on all ranks, that has layers of all kinds.

    Args:
        config: of the large model (Any: of transformers).
        precision: it computes in.
        is_trained: whether its weights have gradients.
        device: where it is.
        trust_remote_code: run code that comes with the model.

    Raises:
        NotSupportedYetError: its kind cannot be built so small.
    """
    from transformers import AutoModelForCausalLM

    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # that of GPUs is the run's
            module: Any = AutoModelForCausalLM.from_config(
                small_config(config),
                dtype=dtype_of(precision, is_trained=is_trained),
                trust_remote_code=trust_remote_code,
            )
        module.to(device).eval().requires_grad_(is_trained)
        return Policy(module, precision=precision)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of a model's own code, whatever it does not find
        raise NotSupportedYetError(
            f"trainer.trainer_strategy fsdp2 tries a small model first, and none of model type "
            f"{config.model_type!r} can be built: {type(error).__name__}: {error}. Use ddp."
        ) from error


def small_config(config: Any) -> Any:
    """Return a copy with few layers, of each kind that there is, and few tokens (Any: see above).

    >>> from transformers import AutoConfig
    >>> kinds = ["sliding_attention"] * 3 + ["full_attention"]
    >>> small = small_config(AutoConfig.for_model("qwen3", num_hidden_layers=4, layer_types=kinds))
    >>> small.layer_types, small.num_hidden_layers
    (['sliding_attention', 'full_attention'], 2)
    """
    small = copy.deepcopy(config)
    text = small.get_text_config(decoder=True)
    number = text.num_hidden_layers
    kept = _kept(getattr(text, "layer_types", None) or [""] * number)
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == number:  # one entry for each layer
            setattr(text, name, [value[layer] for layer in kept])
    text.num_hidden_layers = len(kept)
    text.initializer_range = SPREAD / text.hidden_size**0.5
    for part in (small, text):
        part.vocab_size = NUM_TOKENS
        part.pad_token_id = part.bos_token_id = part.eos_token_id = None
    return small


def _kept(kinds: Sequence[str]) -> list[int]:
    """Return the first layer of each kind, and others until there are enough."""
    first = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    others = [layer for layer in range(len(kinds)) if layer not in first]
    return sorted(first + others[: max(0, MIN_LAYERS - len(first))])
