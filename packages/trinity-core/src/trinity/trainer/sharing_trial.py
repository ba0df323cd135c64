"""Find out, before the first step, in which ways a model computes shared prefixes right.

What a model could do follows from its layers; whether it does is tried: the gradient of a few
tokens, computed in each way, must be that of the rows without sharing. It is the gradient of a
large model's smallest weights (its norms), which passes through all layers and takes no memory; of
LoRA's it is that of B, for beside a new one, which is zero, A has none.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trinity.common.experience import Experience
from trinity.common.ports.weights import LORA_A
from trinity.errors import NotSupportedYetError
from trinity.trainer.microbatch import model_inputs
from trinity.trainer.prefix_tree import (
    PrefixSharing,
    Way,
    known_layers,
    one_pack_per_row,
    pack_rows,
    rows_of,
    text_config,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from trinity.trainer.microbatch import ModelInputs
    from trinity.trainer.policy import Policy
    from trinity.trainer.prefix_tree import Pack

logger = logging.getLogger(__name__)


PAIRS_PER_WIDTH = 2.0  # pairs of tokens that cost as much as a token, by the model's width
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}  # of a trial; wrong ways are off by 0.1 and more
WINDOW = 4  # of the trial, so that a few tokens reach beyond it
MOST_NUMBERS = 2**20  # of a gradient of the trial
ROWS = {  # of the trial: for each way, rows that it computes as one
    "chain": ([7, 1, 6, 2, 5, 3, 4, 7, 6, 1], [7, 1, 6, 2, 5, 3, 4, 7, 6, 1, 2, 2, 5]),
    "cache": ([7, 1, 6, 2, 5, 3, 4, 7, 6, 1], [7, 1, 6, 2, 5, 3, 2, 2, 5]),
    "mask": ([7, 1, 6, 2, 5, 3, 4, 7], [7, 1, 6, 2, 5, 3, 2, 2, 5], [7, 1, 6, 2, 2, 4, 1]),
}
_found: dict[Hashable, frozenset[Way]] = {}  # by class of model and what changes its attention


def find_prefix_sharing(policy: Policy, *, is_required: bool = False) -> PrefixSharing:
    """Return the ways that are right for this model.

    Args:
        policy: the model.
        is_required: a model that can compute no tree is refused.

    Raises:
        NotSupportedYetError: it is required, and the model cannot.
    """
    config = text_config(policy.module)
    key = _class_of(policy, config)
    if key not in _found:
        with _small_window(config):
            _found[key] = frozenset(_right_ways(policy))
        if _found[key] <= {"chain"}:
            rest = "only steps that extend each other share" if _found[key] else "nothing is shared"
            logger.info(
                "trainer.prefix_sharing: model type %r does not compute a tree of tokens as its "
                "rows; %s",
                policy.module.config.model_type,
                rest,
            )
    if is_required and _found[key] <= {"chain"}:
        raise NotSupportedYetError(
            f"trainer.prefix_sharing is 'on', but model type {config.model_type!r} keeps a state, "
            "or takes neither a mask of a tree nor a cache. "
            "Set trainer.prefix_sharing to 'auto' or 'off'."
        )
    return PrefixSharing(ways=_found[key], token_cost=PAIRS_PER_WIDTH * config.hidden_size)


def _class_of(policy: Policy, config: Any) -> Hashable:
    """Return what the ways follow from."""
    return (
        type(policy.module),
        policy.precision,
        policy.has_checkpointing,
        getattr(config, "_attn_implementation", None),
        tuple(getattr(config, "layer_types", None) or ()),
        getattr(config, "sliding_window", None) is None,
    )


def _right_ways(policy: Policy) -> Iterator[Way]:
    is_able: dict[Way, bool] = {
        "chain": True,
        "cache": known_layers(policy.body) and not policy.has_checkpointing,
        "mask": known_layers(policy.body),
    }
    for way, is_possible in is_able.items():
        if is_possible and _is_right(policy, way):
            yield way


def _is_right(policy: Policy, way: Way) -> bool:
    rows = [np.array(row) for row in ROWS[way]]
    sharing = PrefixSharing(ways=frozenset({way}), token_cost=1e9)
    plans = one_pack_per_row(rows), pack_rows(rows, sharing=sharing, max_tokens=99)
    try:
        expected, found = (_gradient(policy, ROWS[way], packs) for packs in plans)
    except torch.OutOfMemoryError:  # a RuntimeError that says nothing about the model
        raise
    except (AttributeError, RuntimeError, TypeError, ValueError, IndexError, KeyError):
        return False  # the model takes no such mask or cache
    difference = sum(float((a - b).square().sum()) for a, b in zip(expected, found, strict=True))
    size = sum(float(gradient.square().sum()) for gradient in expected)
    return size > 0.0 and difference <= TOLERANCE[policy.precision] ** 2 * size


def _gradient(policy: Policy, rows: Sequence[list[int]], packs: Sequence[Pack]) -> list[Tensor]:
    """Return the gradient of a weighed sum of the states, or, of a frozen model, the states."""
    numbers = rows_of(packs)
    inputs = trial_inputs([rows[number] for number in numbers], packs).to(policy.device)
    with torch.enable_grad(), policy.recomputing():
        states_ND = policy.states(inputs).float()
        places = torch.tensor(numbers, device=policy.device)[inputs.rows_N], inputs.columns_N
        states_BRD = states_ND.new_zeros((*inputs.shape, states_ND.shape[1]))
        states_BRD = states_BRD.index_put(places, states_ND)
        trained = [(n, p) for n, p in policy.body.named_parameters() if p.requires_grad]
        by_size = sorted((p for n, p in trained if LORA_A not in n), key=Tensor.numel)
        sums = zip(by_size, accumulate(map(Tensor.numel, by_size)), strict=True)
        parameters = [p for p, total in sums if total <= MOST_NUMBERS] or by_size[:1]
        if not parameters:
            return [states_BRD]
        draw = torch.Generator().manual_seed(0)
        weights_BRD = torch.randn(states_BRD.shape, generator=draw).to(policy.device)
        gradients = torch.autograd.grad(
            (states_BRD * weights_BRD).sum(), parameters, allow_unused=True
        )
    return [gradient for gradient in gradients if gradient is not None]


def trial_inputs(rows: Sequence[list[int]], packs: Sequence[Pack]) -> ModelInputs:
    """Return the model's view of a trial's rows, all of whose tokens after the first are scored.

    Args:
        rows: the tokens of each, in the order of the packs.
        packs: how they are laid out.
    """
    experiences = [Experience(tokens=torch.tensor(row), prompt_length=1) for row in rows]
    lengths_B1 = torch.tensor([[exp.response_length] for exp in experiences])
    mask_BR = torch.arange(int(lengths_B1.max())) < lengths_B1
    return model_inputs(experiences, mask_BR, packs)


@contextmanager
def _small_window(config: Any) -> Iterator[None]:
    """Let a model with a window see so few tokens that the trial's rows reach beyond it."""
    window = getattr(config, "sliding_window", None)
    if window is None:
        yield
        return
    config.sliding_window = WINDOW
    try:
        yield
    finally:
        config.sliding_window = window
