"""Cut a batch into micro-batches by tokens, balanced over the ranks that share it.

B rows of a batch or micro-batch   P packs   L tokens of a pack   R response   N scored tokens
G suffixes of a pack   K tokens of a suffix   T tokens of all packs
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trinity.trainer.prefix_tree import one_pack_per_row, pack_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience
    from trinity.trainer.prefix_tree import Pack, PrefixSharing

    IntArray = NDArray[np.int64]

EVEN = 1.1  # of the mean: what the busiest rank may have before anything is cut finer
FINER = (1.5, 1.0, 0.5)  # of a rank's tokens: largest packs that are tried for a better balance


class Plan(list["Sequence[Pack]"]):
    """The micro-batches of a batch, and which data-parallel rank computes each.

    Args:
        per_rank: the micro-batches of each rank (or sequence-parallel group), in their order.
    """

    def __init__(self, per_rank: Iterable[Sequence[Sequence[Pack]]]) -> None:
        self.per_rank = tuple(per_rank)
        super().__init__(packs for part in self.per_rank for packs in part)

    @classmethod
    def round_robin(cls, micro_batches: Sequence[Sequence[Pack]], *, dp_size: int) -> Plan:
        """Return a plan in which rank i has the micro-batches i, i + n, ..."""
        return cls(micro_batches[rank::dp_size] for rank in range(dp_size))

    @property
    def num_tokens(self) -> int:
        """Return how many tokens are computed; what rows share counts once."""
        return sum(len(pack) for packs in self for pack in packs)

    @property
    def most_tokens(self) -> int:
        return max(sum(len(pack) for packs in part for pack in packs) for part in self.per_rank)


def plan_packs(  # noqa: PLR0913 -- what a plan follows from, one by one
    rows: Sequence[IntArray],
    *,
    max_tokens: int,
    max_padding: int,
    keep_order: bool = False,
    sharing: PrefixSharing | None = None,
    together: int = 1,
    dp_size: int = 1,
    is_balanced: bool = False,
) -> Plan:
    """Return the packs of each micro-batch: of one row each, or of rows that begin alike.

    A pack with cached suffixes is a micro-batch. Where ranks are balanced, shared prefixes are cut
    finer, if that leaves the rank with most tokens less.

    Args:
        rows: the tokens of each row.
        max_tokens: budget of a micro-batch, padding counted.
        max_padding: padding that is cheaper than one more micro-batch.
        keep_order: rows stay in the batch's order, and nothing but a unit's rows is shared.
        sharing: what the model can; None: nothing is shared.
        together: so many rows in a row, a unit, stay in one micro-batch, and share with each other.
        dp_size: data-parallel ranks that share the batch.
        is_balanced: give them as many tokens each, instead of micro-batches round-robin.
    """
    is_fixed = keep_order or together > 1

    def fill(units: Sequence[list[Pack]]) -> list[list[Pack]]:
        return _filled(units, max_tokens=max_tokens, max_padding=max_padding, keep_order=keep_order)

    def plan(largest: int) -> Plan:
        units = _units(rows, size=together, sharing=sharing, max_tokens=largest, is_fixed=is_fixed)
        if not is_balanced or keep_order or dp_size == 1:
            return Plan.round_robin(fill(units), dp_size=dp_size)
        shares = balanced([sum(map(len, unit)) for unit in units], dp_size=dp_size)
        return Plan(fill([units[number] for number in share]) for share in shares)

    first = plan(max_tokens)
    mean = first.num_tokens / dp_size
    if not is_balanced or sharing is None or is_fixed or first.most_tokens <= EVEN * mean:
        return first
    others = (plan(max(1, min(max_tokens, int(part * mean)))) for part in FINER)
    return min(first, *others, key=lambda one: one.most_tokens)


def balanced(sizes: Sequence[int], *, dp_size: int) -> list[list[int]]:
    """Return the numbers of what each rank gets, ascending: the largest first, to who has least.

    >>> balanced([5, 30, 10, 20, 25, 4], dp_size=2)
    [[0, 1, 2, 5], [3, 4]]
    """
    shares: list[list[int]] = [[] for _ in range(dp_size)]
    loads = [0] * dp_size
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        rank = loads.index(min(loads))
        shares[rank].append(number)
        loads[rank] += sizes[number]
    return [sorted(share) for share in shares]


def _filled(
    units: Sequence[list[Pack]], *, max_tokens: int, max_padding: int, keep_order: bool
) -> list[list[Pack]]:
    """Return the packs of each micro-batch of some units, those with cached suffixes first."""
    is_cached = [unit[0].prefix_length > 0 for unit in units]
    cached = [unit for unit, is_one in zip(units, is_cached, strict=True) if is_one]
    others = [unit for unit, is_one in zip(units, is_cached, strict=True) if not is_one]
    plan = plan_microbatches(
        [[len(pack) for pack in unit] for unit in others],
        max_tokens=max_tokens,
        max_padding=max_padding,
        keep_order=keep_order,
    )
    return cached + [[pack for number in part for pack in others[number]] for part in plan]


def _units(
    rows: Sequence[IntArray],
    *,
    size: int,
    sharing: PrefixSharing | None,
    max_tokens: int,
    is_fixed: bool,
) -> list[list[Pack]]:
    """Return the packs that stay together; a unit that is cached is one pack."""
    if sharing is None:
        packs = one_pack_per_row(rows)
        return [packs[first : first + size] for first in range(0, len(packs), size)]
    if not is_fixed:
        return [[pack] for pack in pack_rows(rows, sharing=sharing, max_tokens=max_tokens)]
    units = []
    for first in range(0, len(rows), size):
        packs = pack_rows(rows[first : first + size], sharing=sharing, max_tokens=max_tokens)
        packs.sort(key=lambda pack: pack.rows)
        units.append([replace(p, rows=tuple(first + row for row in p.rows)) for p in packs])
    return units


def plan_microbatches(
    units: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    max_padding: int,
    keep_order: bool = False,
) -> list[list[int]]:
    """Return the numbers of the units of each micro-batch; together they are all, each once.

    Units of like length share a micro-batch, so that little is padded. A micro-batch is full when
    one more unit would make it, padded to its longest row, larger than ``max_tokens``, or would
    bring its padding above ``max_padding``. A unit that is larger than ``max_tokens`` stands alone.

    >>> plan_microbatches([[3], [9], [3], [8]], max_tokens=18, max_padding=4)
    [[1, 3], [0, 2]]
    >>> plan_microbatches([[3], [9], [3], [8]], max_tokens=18, max_padding=4, keep_order=True)
    [[0], [1], [2], [3]]
    >>> plan_microbatches([[3, 3], [9, 8]], max_tokens=18, max_padding=4)
    [[1], [0]]

    Args:
        units: the lengths of the rows of each.
        max_tokens: budget of a micro-batch, padding counted.
        max_padding: padding that is cheaper than one more micro-batch.
        keep_order: units stay in their order.
    """
    order = list(range(len(units)))
    if not keep_order:
        order.sort(key=lambda number: -max(units[number]))
    plan: list[list[int]] = []
    longest = total = num_rows = 0
    for number in order:
        sizes = units[number]
        longest, total = max(longest, *sizes), total + sum(sizes)
        num_rows += len(sizes)
        padded = longest * num_rows
        if plan and padded <= max_tokens and padded - total <= max_padding:
            plan[-1].append(number)
            continue
        plan.append([number])
        longest, total, num_rows = max(sizes), sum(sizes), len(sizes)
    return plan


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInputs:
    """Some packs, padded on the right, and which of their tokens are scored.

    Without ``ends_PL`` no attention mask is needed: a causal model's real tokens stand before the
    padding and never see it. With ``suffixes_GK``, ``tokens_PL`` is one shared prefix, and slots
    are counted through it and then through the suffixes.
    """

    tokens_PL: Tensor
    suffixes_GK: Tensor | None  # None: no prefix is cached
    positions_PL: Tensor | None  # None: as the tokens stand
    ends_PL: Tensor | None  # slot j is seen by the slots from j to ends[j]; None: by all after it
    rows_N: Tensor  # row of each scored token
    columns_N: Tensor  # its place in the response
    slots_N: Tensor  # of the token before it, which predicts it, through all packs and padding
    targets_N: Tensor
    temperature_N: Tensor | None  # None: 1 for all
    shape: tuple[int, int]  # rows, and R of the whole batch
    adapter: str = ""  # of the rows, where the model has several

    @property
    def num_passes(self) -> int:
        """Return how often the decoder is called: for a prefix, and for its suffixes."""
        return 1 if self.suffixes_GK is None else 2

    def to(self, device: torch.device) -> ModelInputs:
        """Return the same on a device."""
        if self.tokens_PL.device == device:
            return self
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        moved: dict[str, Any] = {  # Any: of each field's type
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        return ModelInputs(**moved)


def select_inputs(
    batch: ExperienceBatch, packs: Sequence[Pack]
) -> tuple[ExperienceBatch, ModelInputs]:
    """Return the rows of a micro-batch, in the order of its packs, and the model's view of them."""
    part = batch.select(rows_of(packs))
    return part, model_inputs(part.experiences, part["action_mask"], packs)


def model_inputs(
    experiences: Sequence[Experience], action_mask_BR: Tensor, packs: Sequence[Pack]
) -> ModelInputs:
    """Return the model's view of these rows; tokens where the mask is True are scored.

    Args:
        experiences: the rows, in the order of the packs.
        action_mask_BR: their mask.
        packs: how the rows are laid out; one, if its suffixes are cached.
    """
    layout = _cached(packs[0]) if packs[0].prefix_length else _padded(packs)
    paths = [path for pack in packs for path in pack.paths]
    slots_BL = np.zeros((len(paths), max(map(len, paths))), dtype=np.int64)
    for row, path in enumerate(paths):
        slots_BL[row, : len(path)] = path
    pack_B = np.repeat(np.arange(len(packs)), [len(pack.paths) for pack in packs])
    prompt_B = np.array([exp.prompt_length for exp in experiences])
    rows_N, columns_N = action_mask_BR.numpy().nonzero()
    places_N = prompt_B[rows_N] + columns_N
    starts_P = np.cumsum([0] + [len(pack) for pack in packs])  # of each pack, without padding
    starts_N = starts_P[pack_B[rows_N]]
    tokens_T = np.concatenate([pack.tokens_T for pack in packs])
    return ModelInputs(
        tokens_PL=torch.from_numpy(layout.tokens_PL),
        suffixes_GK=_tensor(layout.suffixes_GK),
        positions_PL=_tensor(layout.positions_PL),
        ends_PL=_tensor(layout.ends_PL),
        rows_N=torch.from_numpy(rows_N),
        columns_N=torch.from_numpy(columns_N),
        slots_N=torch.from_numpy(layout.slots_T[starts_N + slots_BL[rows_N, places_N - 1]]),
        targets_N=torch.from_numpy(tokens_T[starts_N + slots_BL[rows_N, places_N]]),
        temperature_N=_temperatures(experiences, rows_N),
        shape=(len(paths), action_mask_BR.shape[1]),
        adapter=experiences[0].info.get("adapter", ""),
    )


def pad_to_width(values_N: Tensor, inputs: ModelInputs) -> Tensor:
    """Return ``[B, R]`` with each scored token's value at its place and 0 elsewhere.

    R is that of the whole batch, whatever the micro-batch, so that a loss that divides by R is cut
    without error.
    """
    padded_BR = values_N.new_zeros(inputs.shape)
    return padded_BR.index_put((inputs.rows_N, inputs.columns_N), values_N)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """What the model gets, and where each of the packs' tokens stands in it."""

    tokens_PL: IntArray
    slots_T: IntArray
    suffixes_GK: IntArray | None = None
    positions_PL: IntArray | None = None
    ends_PL: IntArray | None = None


def _padded(packs: Sequence[Pack]) -> _Layout:
    """Return packs as rows; a slot of padding sees itself, and nobody else does."""
    shape = len(packs), max(map(len, packs))
    is_tree = not all(pack.is_chain for pack in packs)
    sizes_P = np.array([len(pack) for pack in packs])
    is_token_PL = np.arange(shape[1]) < sizes_P[:, None]
    tokens_PL, positions_PL = np.zeros((2, *shape), dtype=np.int64)
    ends_PL = np.tile(np.arange(1, shape[1] + 1), (shape[0], 1))
    tokens_PL[is_token_PL] = np.concatenate([pack.tokens_T for pack in packs])
    if is_tree:
        positions_PL[is_token_PL] = np.concatenate([pack.positions_T for pack in packs])
        ends_PL[is_token_PL] = np.concatenate([pack.ends_T for pack in packs])
    return _Layout(
        tokens_PL=tokens_PL,
        slots_T=np.flatnonzero(is_token_PL),
        positions_PL=positions_PL if is_tree else None,
        ends_PL=ends_PL if is_tree else None,
    )


def _cached(pack: Pack) -> _Layout:
    """Return a shared prefix, and its suffixes as rows."""
    prefix, suffixes = pack.prefix_length, pack.suffixes(pack.prefix_length)
    lengths_G = np.array([suffix.stop - suffix.start for suffix in suffixes])
    is_token_GK = np.arange(lengths_G.max()) < lengths_G[:, None]
    suffixes_GK = np.zeros(is_token_GK.shape, dtype=np.int64)
    suffixes_GK[is_token_GK] = pack.tokens_T[prefix:]
    slots_T = np.concatenate((np.arange(prefix), prefix + np.flatnonzero(is_token_GK)))
    return _Layout(tokens_PL=pack.tokens_T[None, :prefix], slots_T=slots_T, suffixes_GK=suffixes_GK)


def _tensor(values: IntArray | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(values)


def _temperatures(experiences: Sequence[Experience], rows_N: IntArray) -> Tensor | None:
    # Greedy rollouts report log-probabilities at temperature 1.
    temperature_B = np.array([exp.temperature or 1.0 for exp in experiences], dtype=np.float32)
    return None if (temperature_B == 1.0).all() else torch.from_numpy(temperature_B[rows_N])
