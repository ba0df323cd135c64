"""Pack rows that share a prefix into one tree of tokens, so that the prefix is computed once.

    row 0   p p p a b            pack   p p p a b c d      slots, in the order of a depth-first walk
    row 1   p p p c d                         `-->`-->     a slot sees the slots above it

A causal model's hidden state of a token follows from the tokens before it: rows with a common
prefix have the same states there. The answers to one prompt share it; so do the steps of a rollout
whose prompt extends the conversation so far. A pack of one row is that row.

    chain   each row extends the one before: a sequence as any other, with several action spans
    star    a shared prefix, whose keys and values are cached, and suffixes, each a chain
    tree    any; a mask says which slot sees which: the tokens before it in its row, and, in layers
            with a sliding window, no further back than the window reaches

The prefix's keys and values are expanded over the suffixes; autograd sums what they send back.

T tokens of a pack   L tokens of a row, or of a pack   P packs   G suffixes   K tokens of a suffix
D width
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from trinity.trainer.microbatch import ModelInputs

    IntArray = NDArray[np.int64]

logger = logging.getLogger(__name__)

Way = Literal["chain", "cache", "mask"]

FULL, SLIDING = "full_attention", "sliding_attention"

MAX_MASK_TOKENS = 4096  # a mask has the square of it
MIN_SAVED = 0.25  # of the tokens; below it, what sharing costs is more than what it saves
CACHE_OVERHEAD = 128  # tokens that cost as much as a second forward


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixSharing:
    """How a model computes several rows as one, and what that costs."""

    ways: frozenset[Way]
    token_cost: float  # attended pairs of tokens that cost as much as one token's other work


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack:
    """Some rows as one tree of tokens."""

    rows: tuple[int, ...]  # ascending
    tokens_T: IntArray
    positions_T: IntArray  # how many tokens stand before each
    ends_T: IntArray  # slots that see slot j: j to ends[j]
    paths: tuple[IntArray, ...]  # [L] slots of each row's tokens
    prefix_length: int = 0  # tokens whose keys and values are cached for suffixes; 0: one forward

    def __len__(self) -> int:
        return len(self.tokens_T)

    @property
    def is_chain(self) -> bool:
        """Return whether each token sees all before it, as without a mask."""
        return int(self.positions_T[-1]) == len(self) - 1

    def suffixes(self, prefix_length: int) -> list[slice]:
        """Return the slots of each suffix after a shared prefix of so many tokens."""
        breaks = np.flatnonzero(np.diff(self.positions_T) != 1) + 1
        edges = [prefix_length, *breaks.tolist(), len(self)]
        return [slice(start, end) for start, end in pairwise(edges)]


def rows_of(packs: Sequence[Pack]) -> list[int]:
    return [row for pack in packs for row in pack.rows]


def one_pack_per_row(rows: Sequence[IntArray]) -> list[Pack]:
    return [_pack([number], [tokens], [0]) for number, tokens in enumerate(rows)]


def pack_rows(rows: Sequence[IntArray], *, sharing: PrefixSharing, max_tokens: int) -> list[Pack]:
    """Return packs of rows with equal beginnings, each row in one.

    A row joins where that saves at least a quarter of its tokens, and, under a mask, where the
    tokens cost more than the additional pairs: all of them, as a dense mask hides and does not
    skip. A row that extends another always joins it.

    >>> import numpy as np
    >>> a, b, c = np.array([1, 2, 3]), np.array([7, 8]), np.array([1, 2, 4, 5])
    >>> sharing = PrefixSharing(ways=frozenset({"mask"}), token_cost=100)
    >>> packs = pack_rows([a, b, c], sharing=sharing, max_tokens=10)
    >>> [(pack.rows, pack.tokens_T.tolist(), pack.ends_T.tolist()) for pack in packs]
    [((0, 2), [1, 2, 3, 4, 5], [5, 5, 3, 5, 5]), ((1,), [7, 8], [2, 2])]

    Args:
        rows: the tokens of each.
        sharing: what the model can.
        max_tokens: the most tokens of a pack of several rows.
    """
    texts = [tokens.tolist() for tokens in rows]
    order = sorted(range(len(rows)), key=texts.__getitem__)
    groups: list[_RowGroup] = []
    for place, row in enumerate(order):
        length = len(rows[row])
        common = _num_common(rows[order[place - 1]], rows[row]) if place else 0
        group = groups[-1].joined(row, length, common) if common else None
        if group is not None and group.size <= max_tokens and _pays(groups[-1], group, sharing):
            groups[-1] = group
        else:
            groups.append(_RowGroup(rows=(row,), common=(0,), size=length, length=length))
    return [pack for group in groups for pack in _packs(group, rows, sharing)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _RowGroup:
    """Rows in lexical order, which are to be one pack."""

    rows: tuple[int, ...]
    common: tuple[int, ...]  # tokens that each has in common with the one before
    size: int
    length: int  # of the last row
    prefix_length: int = 0  # of a star; 0: a chain
    is_star: bool = field(default=True)  # or a chain, which may become one

    @property
    def is_chain(self) -> bool:
        return self.is_star and not self.prefix_length

    def joined(self, row: int, length: int, common: int) -> _RowGroup:
        extends = common == self.length
        return _RowGroup(
            rows=(*self.rows, row),
            common=(*self.common, common),
            size=self.size + length - common,
            length=length,
            prefix_length=self.prefix_length if extends else self.prefix_length or common,
            is_star=self.is_star and (extends or self.prefix_length in {0, common}),
        )


def _pays(group: _RowGroup, larger: _RowGroup, sharing: PrefixSharing) -> bool:
    """Return whether a group's newest row is better off in it than alone."""
    length, common = larger.length, larger.common[-1]
    if larger.is_chain:
        return True
    if common < MIN_SAVED * length:
        return False
    if "cache" in sharing.ways and larger.is_star:
        return True
    pairs = larger.size**2 - group.size**2 - length**2
    is_small = larger.size <= MAX_MASK_TOKENS
    return "mask" in sharing.ways and is_small and common * sharing.token_cost >= pairs


def _packs(group: _RowGroup, rows: Sequence[IntArray], sharing: PrefixSharing) -> list[Pack]:
    """Return the group's pack, or a pack for each row where too little is saved."""
    tokens = [rows[row] for row in group.rows]
    if not group.is_chain and sum(group.common) < MIN_SAVED * sum(map(len, tokens)):
        return [_pack([row], [rows[row]], [0]) for row in group.rows]
    pack = _pack(group.rows, tokens, group.common)
    prefix = group.prefix_length if group.is_star and "cache" in sharing.ways else 0
    if prefix and ("mask" not in sharing.ways or _is_cheaper_cached(pack, prefix, sharing)):
        return [replace(pack, prefix_length=prefix)]
    return [pack]


def _is_cheaper_cached(pack: Pack, prefix: int, sharing: PrefixSharing) -> bool:
    lengths = [suffix.stop - suffix.start for suffix in pack.suffixes(prefix)]
    size, slots, longest = len(pack), len(lengths) * max(lengths), max(lengths)
    cached = (prefix + slots + CACHE_OVERHEAD) * sharing.token_cost
    cached += prefix**2 + slots * (prefix + longest)
    return size > MAX_MASK_TOKENS or cached < size * sharing.token_cost + size**2


def _pack(numbers: Sequence[int], rows: Sequence[IntArray], common: Sequence[int]) -> Pack:
    """Return the tree of these rows, in lexical order, each with so many tokens of the last."""
    starts = np.cumsum([0] + [len(row) - k for row, k in zip(rows, common, strict=True)])
    size = int(starts[-1])
    tokens_T, positions_T = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    ends_T = np.full(size, size, dtype=np.int64)
    paths = []
    path = slots = np.arange(size)
    for start, end, row, k in zip(starts, starts[1:], rows, common, strict=False):
        tokens_T[start:end] = row[k:]
        positions_T[start:end] = slots[k : len(row)]
        if start:
            ends_T[path[k:]] = start  # what the last row has and this one has not
            path = np.concatenate((path[:k], slots[start:end]))
        else:
            path = slots[:end]
        paths.append(path)
    order = sorted(range(len(rows)), key=numbers.__getitem__)
    return Pack(
        rows=tuple(numbers[place] for place in order),
        tokens_T=tokens_T,
        positions_T=positions_T,
        ends_T=ends_T,
        paths=tuple(paths[place] for place in order),
    )


def _num_common(first: IntArray, second: IntArray) -> int:
    """Return how many tokens both begin with."""
    size = min(len(first), len(second))
    differs = first[:size] != second[:size]
    place = int(differs.argmax()) if size else 0
    return place if size and differs[place] else size


def hidden_states(body: nn.Module, inputs: ModelInputs) -> Tensor:
    """Return ``[slots, D]``, the last state of each slot, padding among them.

    Args:
        body: a transformers decoder without its output layer.
        inputs: packs, on the body's device.
    """
    if inputs.suffixes_GK is not None:
        return _cached_states(body, inputs.tokens_PL, inputs.suffixes_GK)
    tree: dict[str, Any] = {}  # Any: tensors, and a mask for each kind of layer
    if inputs.ends_PL is not None and inputs.positions_PL is not None:
        mask_PLL = tree_mask(inputs.ends_PL)
        tree["attention_mask"] = masks_of(body, mask_PLL, inputs.positions_PL)
        tree["position_ids"] = inputs.positions_PL
    outputs = body(input_ids=inputs.tokens_PL, use_cache=False, **tree)
    states: Tensor = outputs.last_hidden_state.flatten(0, 1)
    return states


def _cached_states(body: nn.Module, prefix: Tensor, suffixes_GK: Tensor) -> Tensor:
    outputs = body(input_ids=prefix, use_cache=True)
    cache = expanded(outputs.past_key_values, len(suffixes_GK))
    suffixes_GKD = body(
        input_ids=suffixes_GK, past_key_values=cache, use_cache=True
    ).last_hidden_state
    return torch.cat((outputs.last_hidden_state.flatten(0, 1), suffixes_GKD.flatten(0, 1)))


def expanded(cache: Any, num_suffixes: int) -> Any:  # Any: of transformers
    """Return a prefix's cache with its keys and values seen by each suffix, without a copy."""
    for layer in cache.layers:
        layer.keys = layer.keys.expand(num_suffixes, -1, -1, -1)
        layer.values = layer.values.expand(num_suffixes, -1, -1, -1)
    return cache


def known_layers(body: nn.Module) -> bool:
    """Return whether each layer sees all tokens before it, or those in a window."""
    kinds = set(getattr(text_config(body), "layer_types", None) or [FULL])
    return kinds <= {FULL, SLIDING}


def tree_mask(ends_PL: Tensor) -> Tensor:
    """Return ``[P, 1, L, L]``: slot i sees slot j where j <= i < ends[j].

    >>> tree_mask(torch.tensor([[3, 2, 3]]))[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    slots_L = torch.arange(ends_PL.shape[1], device=ends_PL.device)
    sees_PLL = (slots_L[:, None] >= slots_L) & (slots_L[:, None] < ends_PL[:, None, :])
    return sees_PLL[:, None]


def has_window(body: nn.Module) -> bool:
    """Return whether a layer sees no further back than a window reaches."""
    return _window(body) is not None


def masks_of(
    body: nn.Module, mask_P1LL: Tensor, positions_PL: Tensor
) -> Tensor | Mapping[str, Tensor]:
    """Return the mask of all layers, or of each kind of them.

    A window counts tokens of the row, not slots.
    """
    window = _window(body)
    if window is None:
        return mask_P1LL
    is_near_PLL = positions_PL[:, :, None] - positions_PL[:, None, :] < window
    windowed_P1LL = mask_P1LL & is_near_PLL[:, None]
    return windowed_P1LL if _kinds(body) == {SLIDING} else {FULL: mask_P1LL, SLIDING: windowed_P1LL}


def _window(body: nn.Module) -> int | None:
    """Return how far back some layers see; None: all see everything."""
    window: int | None = getattr(text_config(body), "sliding_window", None)
    return window if SLIDING in _kinds(body) else None


def _kinds(body: nn.Module) -> set[str]:
    config = text_config(body)
    has_windows = getattr(config, "sliding_window", None)
    return set(getattr(config, "layer_types", None) or [SLIDING if has_windows else FULL])


def text_config(module: nn.Module) -> Any:  # Any: of transformers
    config: Any = module.config
    return config.get_text_config(decoder=True)
