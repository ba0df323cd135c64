"""Shard each sequence over ranks: all tokens meet in attention, a part of the heads on each.

    rank s      all heads of its tokens: embedding, projections, MLP, output layer, loss
    attention   all-to-all --> a part of the heads of all tokens --> all-to-all

    pack    p p p a b c d .     padded to a multiple of the ranks
    rank 0  p p p a             with its positions in the pack, and its scored tokens
    rank 1          b c d .     attention sees all of them

This is DeepSpeed-Ulysses (arXiv 2309.14509). The ranks of a sequence score its tokens once, each
its own; the scores are summed, so that all compute the loss of the whole micro-batch, and each
sends back what its tokens add to the gradient. A cached prefix and its suffixes are each sharded
so; padding is hidden by a mask.

B rows of a micro-batch   R response   P packs   L tokens of a pack   l tokens of a rank
G suffixes   K tokens of a suffix   H heads of this rank's tokens   h of them after the exchange
T tokens of all   S ranks   D width
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd import Function
from torch.nn.functional import pad, scaled_dot_product_attention

from trinity.errors import ConfigError, NotSupportedYetError
from trinity.trainer.policy import PLAIN, Policy, TokenScores, Wanted
from trinity.trainer.prefix_tree import (
    PrefixSharing,
    expanded,
    has_window,
    known_layers,
    masks_of,
    one_pack_per_row,
    tree_mask,
)
from trinity.trainer.sharing_trial import TOLERANCE, trial_inputs

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed import ProcessGroup

    from trinity.trainer.microbatch import ModelInputs

KEY = "trainer.ulysses_sequence_parallel_size"
ROWS = [7, 1, 6, 2, 5, 3, 4, 7, 6], [3, 1, 2, 5, 7]  # of the trial
_UNKNOWN = ("softcap", "s_aux", "position_bias")  # what changes the products, in transformers


class UlyssesPolicy(Policy):
    """A policy that several ranks score each sequence with; all of them call it as often.

    Args:
        policy: whose attention can be exchanged, see :func:`try_ulysses`.
        group: the ranks of a sequence.
    """

    def __init__(self, policy: Policy, *, group: ProcessGroup) -> None:
        from transformers import AttentionInterface

        super().__init__(policy.module, precision=policy.precision, device=policy.device)
        self._group = group
        self._shard = SequenceShard(
            rank=distributed.get_rank(group), size=distributed.get_world_size(group)
        )
        self.sharing = policy.sharing
        if has_window(self.body):  # a cache that forgets what is beyond a window is not sharded
            ways, token_cost = policy.sharing.ways - {"cache"}, policy.sharing.token_cost
            self.sharing = PrefixSharing(ways=ways, token_cost=token_cost)
        name = f"ulysses_{group.group_name}"
        AttentionInterface.register(name, UlyssesAttention(group))
        policy.module.set_attn_implementation(name)

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> TokenScores:
        own = self._shard.scored(inputs.to(self.device))
        return super().score(own, wanted).map(self._all_reduce)

    def hidden(self, inputs: ModelInputs) -> Tensor:
        return self._shard.states(self.body, inputs)

    def _all_reduce(self, values_BR: Tensor) -> Tensor:
        total_BR: Tensor = _AllReduce.apply(values_BR, self._group)  # type: ignore[no-untyped-call]
        return total_BR


class _AllReduce(Function):
    """The sum over ranks that all compute the same of; each gets the gradient of its own term."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        """Return the sum."""
        total = values.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceShard:
    """Which part of each sequence is a rank's own.

    >>> SequenceShard(rank=1, size=2).of(torch.tensor([[1, 2, 3]])).tolist()
    [[3, 0]]
    """

    rank: int
    size: int

    def of(self, values_PL: Tensor) -> Tensor:
        """Return this rank's columns of what is padded with 0 to a multiple."""
        return self._padded(values_PL).chunk(self.size, dim=1)[self.rank]

    def scored(self, inputs: ModelInputs) -> ModelInputs:
        """Return the inputs with those scored tokens alone that this rank has the states of.

        ``slots_N`` then counts through what :meth:`states` returns here.
        """
        prefix = inputs.tokens_PL
        in_rows = inputs.slots_N < prefix.numel()
        is_own_N, slots_N = self._own_slots(inputs.slots_N, length=prefix.shape[1])
        if inputs.suffixes_GK is not None:
            offset = self._length(prefix.shape[1])
            after_N = inputs.slots_N - prefix.numel()
            is_after_N, places_N = self._own_slots(after_N, length=inputs.suffixes_GK.shape[1])
            is_own_N = torch.where(in_rows, is_own_N, is_after_N)
            slots_N = torch.where(in_rows, slots_N, offset + places_N)
        temperature_N = inputs.temperature_N
        return replace(
            inputs,
            rows_N=inputs.rows_N[is_own_N],
            columns_N=inputs.columns_N[is_own_N],
            slots_N=slots_N[is_own_N],
            targets_N=inputs.targets_N[is_own_N],
            temperature_N=None if temperature_N is None else temperature_N[is_own_N],
        )

    def states(self, body: nn.Module, inputs: ModelInputs) -> Tensor:
        """Return ``[slots, D]``, the last states of this rank's slots, padding among them.

        Args:
            body: a decoder whose attention gathers sequences.
            inputs: whole packs, on the body's device.
        """
        if inputs.suffixes_GK is not None:
            return self._cached_states(body, inputs.tokens_PL, inputs.suffixes_GK)
        positions_PL = inputs.positions_PL
        if positions_PL is None:
            positions_PL = _counted(inputs.tokens_PL)
        mask: dict[str, Any] = {}  # Any: a tensor, or one for each kind of layer
        if inputs.ends_PL is not None or has_window(body):
            mask["attention_mask"] = self._mask(body, inputs.ends_PL, positions_PL)
        outputs = body(
            input_ids=self.of(inputs.tokens_PL),
            position_ids=self.of(positions_PL),
            use_cache=False,
            **mask,
        )
        states: Tensor = outputs.last_hidden_state.flatten(0, 1)
        return states

    def _mask(self, body: nn.Module, ends_PL: Tensor | None, positions_PL: Tensor) -> Any:
        """Return the mask of whole sequences, padding among them (Any: as the model takes it)."""
        num_packs, length = positions_PL.shape
        padded = self._length(length) * self.size
        slots_L = torch.arange(1, padded + 1, device=positions_PL.device)
        all_PL = slots_L.repeat(num_packs, 1)  # padding is seen by itself
        all_PL[:, :length] = length if ends_PL is None else ends_PL
        return masks_of(body, tree_mask(all_PL), self._padded(positions_PL))

    def _cached_states(self, body: nn.Module, prefix: Tensor, suffixes_GK: Tensor) -> Tensor:
        outputs = body(
            input_ids=self.of(prefix), position_ids=self.of(_counted(prefix)), use_cache=True
        )
        of_suffixes = body(
            input_ids=self.of(suffixes_GK),
            position_ids=self.of(_counted(suffixes_GK) + prefix.shape[1]),
            attention_mask=self._mask_after(prefix.shape[1], suffixes_GK),
            past_key_values=expanded(outputs.past_key_values, len(suffixes_GK)),
            use_cache=True,
        )
        parts = outputs.last_hidden_state, of_suffixes.last_hidden_state
        return torch.cat([states.flatten(0, 1) for states in parts])

    def _mask_after(self, prefix: int, suffixes_GK: Tensor) -> Tensor:
        """Return ``[1, 1, K, prefix + K]``: suffixes see the prefix without its padding."""
        lengths = suffixes_GK.shape[1], prefix
        width, past = (self._length(length) * self.size for length in lengths)
        sees_prefix = torch.arange(past, device=suffixes_GK.device) < prefix
        sees_KK = torch.ones((width, width), dtype=torch.bool, device=suffixes_GK.device).tril()
        return torch.cat((sees_prefix.expand(width, past), sees_KK), dim=1)[None, None]

    def _own_slots(self, slots_N: Tensor, *, length: int) -> tuple[Tensor, Tensor]:
        """Return which slots of rows of this length are this rank's, and where they stand here."""
        own = self._length(length)
        rows_N, columns_N = slots_N // length, slots_N % length
        is_own_N = columns_N // own == self.rank
        return is_own_N, rows_N * own + columns_N % own

    def _length(self, length: int) -> int:
        """Return how many columns a rank has of so many."""
        return -(-length // self.size)

    def _padded(self, values_PL: Tensor) -> Tensor:
        length = values_PL.shape[1]
        return pad(values_PL, (0, self._length(length) * self.size - length))


def _counted(tokens_PL: Tensor) -> Tensor:
    return torch.arange(tokens_PL.shape[1], device=tokens_PL.device).repeat(len(tokens_PL), 1)


class UlyssesAttention:
    """Attention over all tokens, by a part of the heads, between two all-to-alls.

    Key-value heads that are too few for the ranks are repeated.

    Args:
        group: the ranks of a sequence.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._size = distributed.get_world_size(group)

    def __call__(  # noqa: PLR0913 -- as transformers calls it
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float | None = None,
        dropout: float = 0.0,
        **others: Any,  # Any: whatever else a model gives
    ) -> tuple[Tensor, None]:
        """Return ``[P, l, H, D]``, and no weights.

        Args:
            module: the model's layer.
            query: ``[P, H, l, D]``, as key and value are, which may have fewer heads, and tokens
                before: those of one prefix, the same for all packs.
            key: see query.
            value: see query.
            attention_mask: of all tokens; None: each sees those before it.
            scaling: of the products.
            dropout: 0.
            **others: nothing that changes the numbers.

        Raises:
            ValueError: the model wants more than this.
        """
        wanted = [name for name in _UNKNOWN if others.get(name) is not None]
        if wanted or dropout:
            raise ValueError(f"its attention has {', '.join(wanted or ['dropout'])}")
        num_past = key.shape[2] - query.shape[2]
        of_heads = self._exchanged(query)
        keys, values = (self._with_past(part, num_past, of_heads) for part in (key, value))
        found = scaled_dot_product_attention(
            of_heads,
            keys,
            values,
            attn_mask=attention_mask,
            is_causal=attention_mask is None,
            scale=scaling,
        )
        own = self._exchanged(found, to_heads=False)
        return own.transpose(1, 2).contiguous(), None

    def _exchanged(self, values: Tensor, *, to_heads: bool = True) -> Tensor:
        found: Tensor = _AllToAll.apply(values, to_heads, self._group)  # type: ignore[no-untyped-call]
        return found

    def _with_past(self, values: Tensor, num_past: int, query: Tensor) -> Tensor:
        """Return keys or values of all tokens, for each of the query's heads."""
        times = self._size // gcd(self._size, values.shape[1])  # the fewest that divide
        values = values.repeat_interleave(times, dim=1) if times > 1 else values
        own = self._exchanged(values[:, :, num_past:])
        if num_past:  # of one prefix: it travels once
            past = self._exchanged(values[:1, :, :num_past])
            own = torch.cat((past.expand(len(own), -1, -1, -1), own), dim=2)
        times = query.shape[1] // own.shape[1]
        return own.repeat_interleave(times, dim=1) if times > 1 else own


class _AllToAll(Function):
    """Give tokens for heads, or heads for tokens; the gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, to_heads: bool, group: ProcessGroup) -> Tensor:  # noqa: FBT001
        """Return ``[P, h, T, D]`` of ``[P, H, l, D]``, or the reverse."""
        ctx.to_heads, ctx.group = to_heads, group
        return _all_to_all(values, to_heads=to_heads, group=group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _all_to_all(gradients[0], to_heads=not ctx.to_heads, group=ctx.group), None, None


def _all_to_all(values: Tensor, *, to_heads: bool, group: ProcessGroup) -> Tensor:
    size = distributed.get_world_size(group)
    packs, heads, tokens, width = values.shape
    if to_heads:
        own_SPhlD = values.view(packs, size, heads // size, tokens, width).transpose(0, 1)
    else:
        own_SPhlD = values.view(packs, heads, size, tokens // size, width).permute(2, 0, 1, 3, 4)
    own_SPhlD = own_SPhlD.contiguous()
    found_SPhlD = torch.empty_like(own_SPhlD)
    distributed.all_to_all_single(found_SPhlD, own_SPhlD, group=group)  # gloo and nccl have it
    if to_heads:
        return found_SPhlD.permute(1, 2, 0, 3, 4).reshape(packs, heads // size, -1, width)
    return found_SPhlD.transpose(0, 1).reshape(packs, heads * size, -1, width)


def try_ulysses(policy: Policy, *, group: ProcessGroup) -> UlyssesPolicy:
    """Return the policy with sharded sequences, if it scores a few tokens as it does without.

    Args:
        policy: with all weights, the same on every rank.
        group: the ranks of a sequence, which call this at once.

    Raises:
        ConfigError: the model's heads do not divide.
        NotSupportedYetError: its attention cannot be exchanged so.
    """
    size = distributed.get_world_size(group)
    heads = policy.module.config.get_text_config(decoder=True).num_attention_heads
    if heads % size:
        raise ConfigError(
            f"{KEY} is {size}, which does not divide the model's {heads} attention heads. "
            "Use a number that does."
        )
    if not known_layers(policy.body):
        raise _refusal(policy, "some of its layers keep a state")
    expected_BR = _trial_of(policy)
    sharded = UlyssesPolicy(policy, group=group)
    try:
        found_BR = _trial_of(sharded)
    except (AttributeError, TypeError, ValueError) as error:  # the same on all ranks
        raise _refusal(policy, str(error)) from error
    difference = float((found_BR - expected_BR).abs().max())
    if not difference <= TOLERANCE[policy.precision] * max(1.0, float(expected_BR.abs().max())):
        raise _refusal(policy, "it computes something else then")
    return sharded


@torch.no_grad()
def _trial_of(policy: Policy) -> Tensor:
    """Return log-probabilities of two rows of a few tokens."""
    packs = one_pack_per_row([np.array(row) for row in ROWS])
    return policy.score(trial_inputs(ROWS, packs)).logprob


def _refusal(policy: Policy, reason: str) -> NotSupportedYetError:
    return NotSupportedYetError(
        f"{KEY} is above 1, and the attention of model type {policy.module.config.model_type!r} "
        f"cannot be shared between ranks: {reason}. Set it to 1."
    )
