"""Share each sequence between ranks: all tokens meet in attention, a part of the heads on each.

    rank s      all heads of its tokens: embedding, projections, MLP, output layer, loss
    attention   all-to-all --> a part of the heads of all tokens --> all-to-all

This is DeepSpeed-Ulysses (arXiv 2309.14509). The ranks of a sequence score its tokens once, each
its own; the scores are summed, so that all compute the loss of the whole micro-batch, and each
sends back what its tokens add to the gradient.

B rows of a micro-batch   R response   D width
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.autograd import Function

from trinity.errors import ConfigError, NotSupportedYetError
from trinity.trainer.cutting import Part
from trinity.trainer.forward import has_window, known_layers
from trinity.trainer.layout import Sharing
from trinity.trainer.policy import PLAIN, PaddedScores, Policy, Wanted
from trinity.trainer.shared_attention import SharedAttention

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trinity.trainer.microbatch import ModelInputs

KEY = "trainer.ulysses_sequence_parallel_size"
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}  # of the trial's log-probabilities, in nats


class UlyssesPolicy(Policy):
    """A policy that several ranks score each sequence with; all of them call it as often.

    Args:
        policy: whose attention can be shared, see :func:`tried`.
        group: the ranks of a sequence.
    """

    def __init__(self, policy: Policy, *, group: ProcessGroup) -> None:
        super().__init__(policy.module, precision=policy.precision, device=policy.device)
        self._group = group
        size = distributed.get_world_size(group)
        self._part = Part(place=distributed.get_rank(group), size=size)
        self.sharing = _cut_sharing(policy)
        name = f"ulysses_{group.group_name}"
        _register(name, SharedAttention(group))
        policy.module.set_attn_implementation(name)

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> PaddedScores:
        own = self._part.scored(inputs.to(self.device))
        scores = super().score(own, wanted)
        entropy_BR, change_BR = scores.entropy_BR, scores.mean_change_BR
        return PaddedScores(
            logprob_BR=self._summed(scores.logprob_BR),
            entropy_BR=None if entropy_BR is None else self._summed(entropy_BR),
            mean_change_BR=None if change_BR is None else self._summed(change_BR),
        )

    def hidden(self, inputs: ModelInputs) -> Tensor:
        return self._part.states(self.body, inputs)

    def _summed(self, values_BR: Tensor) -> Tensor:
        total_BR: Tensor = _Summed.apply(values_BR, self._group)  # type: ignore[no-untyped-call]
        return total_BR


def tried(policy: Policy, *, group: ProcessGroup) -> UlyssesPolicy:
    """Return the policy with shared sequences, if it scores a few tokens as it does without.

    Args:
        policy: with all weights, the same on every rank.
        group: the ranks of a sequence, which call this at once.

    Raises:
        ConfigError: the model's heads do not divide.
        NotSupportedYetError: its attention cannot be shared so.
    """
    refuse_heads(policy, size=distributed.get_world_size(group))
    expected_BR = _trial_of(policy)
    shared = UlyssesPolicy(policy, group=group)
    try:
        found_BR = _trial_of(shared)
    except (AttributeError, TypeError, ValueError) as error:  # the same on all ranks
        raise _refusal(policy, str(error)) from error
    difference = float((found_BR - expected_BR).abs().max())
    if not difference <= TOLERANCE[policy.precision] * max(1.0, float(expected_BR.abs().max())):
        raise _refusal(policy, "it computes something else then")
    return shared


class _Summed(Function):
    """The sum over ranks that all compute the same of; each gets the gradient of its own term."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        """Return the sum."""
        total = values.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient as it is."""
        return gradients[0], None


def refuse_heads(policy: Policy, *, size: int) -> None:
    """Refuse a model whose heads cannot be dealt to so many ranks.

    Raises:
        ConfigError: their number is no multiple.
    """
    heads = policy.module.config.get_text_config(decoder=True).num_attention_heads
    if heads % size:
        raise ConfigError(
            f"{KEY} is {size}, which does not divide the model's {heads} attention heads. "
            "Use a number that does."
        )


def _cut_sharing(policy: Policy) -> Sharing:
    """Return how rows share; a cache that forgets what is beyond a window is not cut."""
    sharing = policy.sharing
    if not has_window(policy.body):
        return sharing
    return Sharing(ways=sharing.ways - {"cache"}, token_cost=sharing.token_cost)


def _register(name: str, attention: SharedAttention) -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(name, attention)


@torch.no_grad()
def _trial_of(policy: Policy) -> Tensor:
    """Return log-probabilities of two rows of a few tokens."""
    import numpy as np

    from trinity.common.experience import Experience
    from trinity.trainer.layout import rows_apart
    from trinity.trainer.microbatch import model_inputs

    if not known_layers(policy.body):
        raise _refusal(policy, "some of its layers keep a state")
    rows = [np.array(row) for row in ([7, 1, 6, 2, 5, 3, 4, 7, 6], [3, 1, 2, 5, 7])]
    experiences = [Experience(tokens=torch.from_numpy(row), prompt_length=1) for row in rows]
    mask_BR = torch.ones((2, 8), dtype=torch.bool)
    mask_BR[1, 4:] = False
    return policy.score(model_inputs(experiences, mask_BR, rows_apart(rows))).logprob_BR


def _refusal(policy: Policy, reason: str) -> NotSupportedYetError:
    return NotSupportedYetError(
        f"{KEY} is above 1, and the attention of model type {policy.module.config.model_type!r} "
        f"cannot be shared between ranks: {reason}. Set it to 1."
    )
