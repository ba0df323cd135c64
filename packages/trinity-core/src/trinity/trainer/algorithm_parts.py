"""The maths that a configuration names, the loss that they add up to, and what they change.

A micro-batch's share of the gradient is weighted so that the shares sum to that of the batch. What
the audit notes are metrics ``audit/...``, which the run takes out (``runtime/audit.py``).

B rows of a batch or micro-batch   R response
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trinity.algorithm.entropy_loss_fn import NoEntropyLossFn
from trinity.algorithm.fields import arguments_from, with_whole
from trinity.algorithm.ops import masked, metric_weights, normalizer_of_mode, weight_of_part
from trinity.algorithm.rollout_correction import RolloutCorrection, with_weighted_gradient
from trinity.common.batch import ALIASES
from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.algorithm.advantage_fn import AdvantageFn
    from trinity.algorithm.algorithm import AlgorithmType
    from trinity.algorithm.entropy_loss_fn import EntropyLossFn
    from trinity.algorithm.kl_fn import KLFn
    from trinity.algorithm.ops import LossAggMode
    from trinity.algorithm.policy_loss_fn import PolicyLossFn
    from trinity.common.batch import ExperienceBatch, Fields
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.trainer.policy import EntropyUse


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmParts:
    """The components of an algorithm, ready to be called."""

    algorithm: type[AlgorithmType]
    policy_loss_fn: PolicyLossFn
    entropy_loss_fn: EntropyLossFn
    loss_agg_mode: LossAggMode
    advantage_fn: AdvantageFn | None  # None: the algorithm uses no advantages
    kl_loss_fn: KLFn | None  # None: no KL term in the loss
    kl_penalty_fn: KLFn | None  # None: rewards stay as they are
    rollout_correction: RolloutCorrection | None = None  # None: the rollout is taken as it is
    advantage_needs: frozenset[str] = frozenset()  # words of its ComponentSpec

    @property
    def wants_pairs(self) -> bool:
        return self.policy_loss_fn.normalizer == "pairs"

    @property
    def has_critic(self) -> bool:
        return bool(self.algorithm.setting("use_critic")) or "values" in self.advantage_needs

    @property
    def advantage_needs_entropies(self) -> bool:
        """Return whether the advantage function looks at the entropy of each token."""
        return bool(self.advantage_needs & {"entropys", "necs"})

    @property
    def loss_needs_reference(self) -> bool:
        """Return whether the loss reads the reference model's log-probabilities."""
        keys = {ALIASES.get(key, key) for key in self.policy_loss_fn.select_keys}
        return self.kl_loss_fn is not None or "ref_logprob" in keys

    @property
    def entropy_use(self) -> EntropyUse:
        """Return what the entropy of each token is needed for."""
        if isinstance(self.entropy_loss_fn, NoEntropyLossFn):
            return None
        return getattr(self.entropy_loss_fn, "entropy_coef", 1.0) != 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedLoss:
    """A micro-batch's share; the shares of a batch sum to the batch's loss and metrics."""

    loss: Tensor
    metrics: Metrics


def weighted_loss(
    parts: AlgorithmParts, fields: Fields, *, whole: Mapping[str, Any]
) -> WeightedLoss:
    """Return the share of ``policy loss - entropy + KL``.

    Args:
        parts: the losses.
        fields: of the micro-batch, each ``[B, R]``: ``logprob``, ``action_mask``, what the losses
            name, and ``entropy`` where it is wanted.
        whole: fields of the batch (Any: tensors), whose ``action_mask`` the normalisers count.
    """
    policy_loss_fn, entropy_loss_fn = parts.policy_loss_fn, parts.entropy_loss_fn
    known = with_whole(policy_loss_fn, fields, whole)
    if "rollout_weight" in fields:
        known["logprob"] = with_weighted_gradient(fields["logprob"], fields["rollout_weight"])
    policy_loss, numbers = policy_loss_fn(**arguments_from(policy_loss_fn, known))
    masks = fields["action_mask"], whole["action_mask"]
    loss = policy_loss * weight_of_part(policy_loss_fn.normalizer, *masks)
    weights = metric_weights(policy_loss_fn, numbers, *masks)
    metrics = {name: value * weights[name] for name, value in numbers.items()}
    own, whole_own_BR = _own_rows(fields, whole)
    mode = parts.loss_agg_mode
    share = weight_of_part(normalizer_of_mode(mode), own["action_mask"], whole_own_BR)
    if "entropy" in own and len(own["entropy"]):
        known = {**own, "loss_agg_mode": mode}
        entropy, numbers = entropy_loss_fn(**arguments_from(entropy_loss_fn, known))
        loss = loss - entropy * share
        metrics |= _scaled(numbers, share)
    if parts.kl_loss_fn is not None and len(own["logprob"]):
        kl, numbers = parts.kl_loss_fn.calculate_kl_loss(
            own["logprob"], own["ref_logprob"], own["action_mask"], mode, own.get("old_logprob")
        )
        loss = loss + kl * share
        metrics |= _scaled(numbers, share)
    metrics |= _distance_from_rollout(own, whole_own_BR)
    return WeightedLoss(loss=loss, metrics=metrics | {"loss": loss.detach().item()})


def _own_rows(
    fields: Mapping[str, Any], whole: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Tensor]:
    """Return the fields of the rows that are no expert's, and the mask of such rows of the batch.

    How undecided the policy is about an expert's tokens, and how far from the reference, is no
    matter of its own exploring.
    """
    if "expert_mask" not in fields:
        return fields, whole["action_mask"]
    is_own_B, is_own_of_whole_B = (~rows["expert_mask"].bool() for rows in (fields, whole))
    own = {name: value[is_own_B] for name, value in fields.items()}
    return own, whole["action_mask"][is_own_of_whole_B]


def _scaled(metrics: Metrics, share: float) -> Metrics:
    return {name: value * share for name, value in metrics.items()}


def _distance_from_rollout(own: Mapping[str, Any], whole_own_BR: Tensor) -> Metrics:
    """Return the mean distance from what the engine says; an expert's rows are of no engine."""
    if "sampled_logprob" not in own or not len(own["sampled_logprob"]):
        return {}
    mask_BR = own["action_mask"]
    difference_BR = masked(own["logprob"].detach() - own["sampled_logprob"], mask_BR).abs()
    return {"rollout_logprob_diff": difference_BR.sum().item() / max(int(whole_own_BR.sum()), 1)}


def not_finite(what: str, value: float, rows: ExperienceBatch, *, step: int) -> TrinityError:
    """Return the error for a loss or a gradient that is no finite number."""
    eids = [str(exp.eid) for exp in _suspects(rows)]
    shown = ", ".join(eids[:8]) + (f" and {len(eids) - 8} more" if len(eids) > 8 else "")
    return TrinityError(
        f"train step {step} stopped: the {what} is {value}. The weights are as before. "
        f"Experiences: {shown}. Look for rewards or log-probabilities that are no numbers, "
        "or lower algorithm.optimizer.lr."
    )


def _suspects(rows: ExperienceBatch) -> list[Experience]:
    """Return the rows that hold a number which is none, or else all rows."""
    floats = [value for value in rows.batch.values() if value.is_floating_point()]
    suspects = [
        exp
        for row, exp in enumerate(rows.experiences)
        if not all(value[row].isfinite().all() for value in floats)
    ]
    return suspects or rows.experiences


MIN_TOKENS = 8  # a shorter row counts as one of so many: one rounding is no wrong row


class StepAudit:
    """Looks at the parts of the trainer, and computes nothing that a step does not.

    Args:
        is_on: False: it looks at nothing.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._found: Metrics = {}
        self._held: dict[str, list[tuple[Tensor, int]]] = {}  # inputs of the last calls

    @contextmanager
    def unchanged(self, kind: str, inputs: Mapping[str, Any]) -> Iterator[None]:
        """Note whether a part of the kind changes these tensors, now or after its last call.

        Torch counts the changes of each tensor in place; what has a gradient is not held.
        """
        if not self._is_on:
            yield
            return
        held = self._held.pop(kind, [])
        tensors = [v for v in inputs.values() if isinstance(v, Tensor) and not v.is_inference()]
        counts = [tensor._version for tensor in tensors]
        yield
        now = [tensor._version for tensor in tensors]
        if now != counts or any(tensor._version != count for tensor, count in held):
            self._found[f"audit/inputs/{kind}"] = 1.0
        pairs = zip(tensors, now, strict=True)
        self._held[kind] = [(one, count) for one, count in pairs if not one.requires_grad]

    def compare(self, part: ExperienceBatch, fields: Mapping[str, Any], *, version: int) -> None:
        """Note how far the rollout's log-probabilities are from the policy's, of one micro-batch.

        Only rows that this very version of the weights sampled are looked at.

        Args:
            part: the rows.
            fields: ``logprob`` and ``sampled_logprob``, each ``[B, R]``.
            version: of the weights.
        """
        if not self._is_on or "sampled_logprob" not in fields or "audit/rows" in self._found:
            return
        rows = [
            row
            for row, exp in enumerate(part.experiences)
            if exp.info.get("model_version") == version and not exp.info.get("version_spans")
        ]
        if not rows:
            return
        mask_BR = part["action_mask"].bool()[rows]
        gap_BR = (fields["sampled_logprob"] - fields["logprob"].detach())[rows].abs().cpu()
        gap_B = gap_BR.where(mask_BR, 0.0).sum(1) / mask_BR.sum(1).clamp_min(MIN_TOKENS)
        self._found |= {"audit/rows": float(len(rows)), "audit/gap": gap_B.max().item()}

    def take(self) -> Metrics:
        """Return what was noted since the last call."""
        found, self._found = self._found, {}
        return found
