"""Spread a model over the ranks: each holds a part of every weight, and asks for the rest (FSDP2).

    filled   by ``scattering.py``, which reads the model on one rank
    sharded  each decoder layer a unit, and one root around all of ``Policy.score``
    pass     a unit's weights come together, are used, and go apart again: all ranks at once

So no weight is touched outside of the root, and all ranks make the same passes through the decoder:
a stem that is cached takes two, and a rank that has fewer than another makes the rest over two
tokens, with weight 0. Gradients are summed, never averaged: shares of a batch add up to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from trinity.trainer.microbatch import ModelInputs
from trinity.trainer.policy import PLAIN, PaddedScores, Policy, Wanted

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Scores = tuple[Tensor, Tensor | None, Tensor | None]


class ShardedPolicy(Policy):
    """A policy whose weights are spread over the ranks; all of them call it as often.

    There is room for this rank's parts, and nothing in it.

    Args:
        policy: without weights, and with what is known of its sharing.
        mesh: the ranks, in one dimension.
        is_offloaded: the parts, their gradients and the optimizer's states are in CPU memory, and a
            unit's weights come to the GPU for its pass.
    """

    def __init__(self, policy: Policy, *, mesh: DeviceMesh, is_offloaded: bool = False) -> None:
        super().__init__(policy.module, precision=policy.precision, device=policy.device)
        self.sharing = policy.sharing
        policy.keeps_rounded = False  # else each rank has all weights, rounded, in every pass
        self._root = _Root(policy)
        offload = OffloadPolicy()
        if is_offloaded:
            offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
        for unit in (*_layers(policy.module), self._root):
            fully_shard(unit, mesh=mesh, reshard_after_forward=True, offload_policy=offload)
        for module in self._root.modules():  # of each unit: the root does not speak for the others
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        self._root.to_empty(device="cpu" if is_offloaded else policy.device)

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> PaddedScores:
        logprob_BR, entropy_BR, change_BR = self._root(inputs, wanted)
        return PaddedScores(logprob_BR=logprob_BR, entropy_BR=entropy_BR, mean_change_BR=change_BR)

    def idle(self, *, num_passes: int) -> Tensor:
        scores = self.score(_two_tokens(), Wanted(num_passes=num_passes))
        zero: Tensor = scores.logprob_BR.sum() * 0.0
        return zero


class _Root(nn.Module):
    """All that a policy scores with, as one module."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.module = policy.module
        self._policy = [policy]  # in a list: it is no module

    def forward(self, inputs: ModelInputs, wanted: Wanted) -> Scores:
        """Return the scores as a tuple, in which FSDP finds the tensors."""
        policy, zero = self._policy[0], None
        idle = wanted.num_passes - inputs.num_passes
        for _ in range(idle):  # before the pass that counts, as a stem is before its branches
            states_ND = policy.states(_two_tokens())
            zero = states_ND.float().sum() * 0.0
        scores = policy.score(inputs, wanted)
        logprob_BR = scores.logprob_BR if zero is None else scores.logprob_BR + zero
        return logprob_BR, scores.entropy_BR, scores.mean_change_BR


def _two_tokens() -> ModelInputs:
    """Return one row of two tokens, of which the second is scored."""
    zero_N = torch.zeros(1, dtype=torch.long)
    return ModelInputs(
        tokens_PL=torch.zeros((1, 2), dtype=torch.long),
        branches_GK=None,
        positions_PL=None,
        ends_PL=None,
        rows_N=zero_N,
        columns_N=zero_N,
        slots_N=zero_N,
        targets_N=zero_N,
        temperature_N=None,
        shape=(1, 1),
    )


def _layers(module: nn.Module) -> list[nn.Module]:
    """Return the decoder layers: what transformers never splits over devices."""
    names = set(getattr(module, "_no_split_modules", None) or ())
    return [part for part in module.modules() if type(part).__name__ in names]
