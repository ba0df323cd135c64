"""What a train step knows about its parts: who changes inputs, and what the rollout claimed.

It is told to the run as metrics ``audit/...``, which the run takes out (``runtime/audit.py``).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.batch import ExperienceBatch
    from trinity.common.metrics import Metrics

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
        tensors = [
            value
            for value in inputs.values()
            if isinstance(value, Tensor) and not value.is_inference()
        ]
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
