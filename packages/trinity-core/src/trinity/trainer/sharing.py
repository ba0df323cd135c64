"""Find out how a model can compute rows that begin alike as one.

What a model could do follows from its layers; whether it does is tried: the gradient of a few
tokens, computed in each way, must be that of the rows apart.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trinity.common.experience import Experience
from trinity.errors import NotSupportedYetError
from trinity.trainer.forward import known_layers
from trinity.trainer.layout import Sharing, Way, pack_rows, rows_apart, rows_of
from trinity.trainer.microbatch import model_inputs
from trinity.trainer.recomputing import is_recomputing, recomputing

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from trinity.trainer.layout import Pack
    from trinity.trainer.policy import Policy

    IntArray = NDArray[np.int64]

logger = logging.getLogger(__name__)

PAIRS_PER_WIDTH = 2.0  # pairs of tokens that cost as much as a token, by the model's width
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}  # wrong ways are off by 0.1 and more
WINDOW = 4  # of the trial, so that a few tokens reach beyond it
ROWS = {  # of the trial: for each way, rows that it computes as one
    "chain": ([7, 1, 6, 2, 5, 3, 4, 7, 6, 1], [7, 1, 6, 2, 5, 3, 4, 7, 6, 1, 2, 2, 5]),
    "cache": ([7, 1, 6, 2, 5, 3, 4, 7, 6, 1], [7, 1, 6, 2, 5, 3, 2, 2, 5]),
    "mask": ([7, 1, 6, 2, 5, 3, 4, 7], [7, 1, 6, 2, 5, 3, 2, 2, 5], [7, 1, 6, 2, 2, 4, 1]),
}
_found: dict[Hashable, frozenset[Way]] = {}  # by class of model and what changes its attention


def find_sharing(policy: Policy, *, is_required: bool = False) -> Sharing:
    """Return the ways that are right for this model.

    Args:
        policy: the model.
        is_required: a model that can compute no tree is refused.

    Raises:
        NotSupportedYetError: it is required, and the model cannot.
    """
    config = policy.module.config.get_text_config(decoder=True)
    key = _class_of(policy, config)
    if key not in _found:
        with _small_window(config):
            _found[key] = frozenset(_right_ways(policy))
        if _found[key] <= {"chain"}:
            logger.info("%s", _remark(policy, _found[key]))
    if is_required and _found[key] <= {"chain"}:
        raise NotSupportedYetError(
            f"trainer.prefix_sharing is 'on', but model type {config.model_type!r} keeps a state, "
            "or takes neither a mask of a tree nor a cache. "
            "Set trainer.prefix_sharing to 'auto' or 'off'."
        )
    return Sharing(ways=_found[key], token_cost=PAIRS_PER_WIDTH * config.hidden_size)


def _class_of(policy: Policy, config: Any) -> Hashable:
    """Return what the ways follow from."""
    return (
        type(policy.module),
        policy.precision,
        is_recomputing(policy.module),
        getattr(config, "_attn_implementation", None),
        tuple(getattr(config, "layer_types", None) or ()),
        getattr(config, "sliding_window", None) is None,
    )


def _remark(policy: Policy, ways: frozenset[Way]) -> str:
    kind = policy.module.config.model_type
    rest = "only steps that extend each other share" if ways else "nothing is shared"
    return (
        f"trainer.prefix_sharing: model type {kind!r} does not compute a tree of tokens as its "
        f"rows; {rest}"
    )


def _right_ways(policy: Policy) -> Iterator[Way]:
    is_able: dict[Way, bool] = {
        "chain": True,
        "cache": known_layers(policy.body) and not is_recomputing(policy.module),
        "mask": known_layers(policy.body),
    }
    for way, is_possible in is_able.items():
        if is_possible and _is_right(policy, way):
            yield way


def _is_right(policy: Policy, way: Way) -> bool:
    rows = [np.array(row) for row in ROWS[way]]
    sharing = Sharing(ways=frozenset({way}), token_cost=1e9)
    packs = pack_rows(rows, sharing=sharing, max_tokens=99)
    try:
        expected, found = (_gradient(policy, rows, layout) for layout in (rows_apart(rows), packs))
    except torch.OutOfMemoryError:  # a RuntimeError that says nothing about the model
        raise
    except (AttributeError, RuntimeError, TypeError, ValueError, IndexError, KeyError):
        return False  # the model takes no such mask or cache
    difference = sum(float((a - b).square().sum()) for a, b in zip(expected, found, strict=True))
    size = sum(float(gradient.square().sum()) for gradient in expected)
    return difference <= TOLERANCE[policy.precision] ** 2 * size


def _gradient(policy: Policy, rows: Sequence[IntArray], packs: Sequence[Pack]) -> list[Tensor]:
    """Return the gradient of a weighed sum of the states, or, of a frozen model, the states."""
    numbers = rows_of(packs)
    experiences = [
        Experience(tokens=torch.from_numpy(rows[row]), prompt_length=1) for row in numbers
    ]
    lengths_B1 = torch.tensor([[exp.response_length] for exp in experiences])
    mask_BR = torch.arange(int(lengths_B1.max())) < lengths_B1
    inputs = model_inputs(experiences, mask_BR, packs).to(policy.device)
    with torch.enable_grad(), recomputing(policy.module):
        states_ND = policy.states(inputs).float()
        places = torch.tensor(numbers, device=policy.device)[inputs.rows_N], inputs.columns_N
        states_BRD = states_ND.new_zeros((*mask_BR.shape, states_ND.shape[1]))
        states_BRD = states_BRD.index_put(places, states_ND)
        parameters = [p for p in policy.body.parameters() if p.requires_grad]
        if not parameters:
            return [states_BRD]
        draw = torch.Generator().manual_seed(0)
        weights_BRD = torch.randn(states_BRD.shape, generator=draw).to(policy.device)
        gradients = torch.autograd.grad(
            (states_BRD * weights_BRD).sum(), parameters, allow_unused=True
        )
    return [gradient for gradient in gradients if gradient is not None]


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
