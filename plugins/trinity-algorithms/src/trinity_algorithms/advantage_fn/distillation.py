"""Compute advantages from a teacher's log-probabilities of the student's own tokens.

B rows of a batch   R response   s = old_logprob   t = teacher_logprobs   d = t - s
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.ops import MAX_LOG_RATIO, masked, masked_sum

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.common.batch import ExperienceBatch

__all__ = ["JSDAdvantageFn", "OnPolicyDistillAdvantageFn"]


class OnPolicyDistillAdvantageFn(AdvantageFn):
    """Scores a token by ``kl_coef (t - s)``: what the teacher finds likelier is good.

    The mean over tokens is minus the reverse KL divergence from the teacher (arXiv 2306.13649).

    Args:
        kl_coef: the weight.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def __init__(self, *, kl_coef: float = 1.0) -> None:
        self.kl_coef = kl_coef

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages, and ``kl/mean, kl/std, advantages/mean`` over rows."""
        mask_BR = exps["action_mask"].bool()
        student_BR = masked(exps["old_logprob"].detach(), mask_BR)
        difference_BR = masked(exps["teacher_logprobs"].detach(), mask_BR) - student_BR
        metrics = _over_rows("kl", masked_sum(-difference_BR, mask_BR, -1))
        return _with_tokens(exps, self.kl_coef * difference_BR, metrics)


class JSDAdvantageFn(AdvantageFn):
    """Scores a token by how fast its probability lowers the divergence from a teacher.

    The divergence is ``beta KL(teacher || mix) + (1 - beta) KL(student || mix)`` with
    ``mix = beta teacher + (1 - beta) student``, of the distributions of one token; the score is
    minus its functional derivative: ``d`` for beta 0 (reverse KL),
    ``(1 - beta) ln((1 - beta) + beta e^d)`` between, ``e^d - 1`` for beta 1 (forward KL). (beta
    runs the other way in arXiv 2306.13649.) Trinity-RFT scores by the divergence's own summand,
    which is never negative and has the wrong sign at beta 1.

    Args:
        lambda_coef: beta, from 0 to 1.
        kl_coef: the weight.
        temperature: both log-probabilities are divided by it; above 0.
        chunk_size: published; tokens that are looked at together. The result does not depend on it.

    Raises:
        ValueError: ``lambda_coef``, ``temperature`` or ``chunk_size`` is out of its range.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def __init__(
        self,
        *,
        lambda_coef: float = 0.5,
        kl_coef: float = 1.0,
        temperature: float = 1.0,
        chunk_size: int | None = None,
    ) -> None:
        if not 0.0 <= lambda_coef <= 1.0:
            raise ValueError(f"lambda_coef is {lambda_coef}; it must be from 0 to 1")
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0")
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size is {chunk_size}; it must be 1 or more")
        self.lambda_coef = lambda_coef
        self.kl_coef = kl_coef
        self.temperature = temperature
        self.chunk_size = chunk_size

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages; ``jsd/mean, jsd/std, advantages/mean`` over rows."""
        mask_BR = exps["action_mask"].bool()
        student_BR = masked(exps["old_logprob"].detach(), mask_BR) / self.temperature
        teacher_BR = masked(exps["teacher_logprobs"].detach(), mask_BR) / self.temperature
        difference_BR = teacher_BR - student_BR
        summand_BR = masked(self._summand(student_BR, teacher_BR), mask_BR)
        metrics = _over_rows("jsd", masked_sum(summand_BR, mask_BR, -1))
        return _with_tokens(exps, self.kl_coef * self._score(difference_BR), metrics)

    def _score(self, difference_BR: Tensor) -> Tensor:
        beta = self.lambda_coef
        if beta == 0.0:
            return difference_BR
        excess_BR = difference_BR.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).expm1()
        return excess_BR if beta == 1.0 else (1.0 - beta) * (beta * excess_BR).log1p()

    def _summand(self, student_BR: Tensor, teacher_BR: Tensor) -> Tensor:
        """Return the published per-token quantity, which is a metric here."""
        beta = self.lambda_coef
        if beta == 0.0:
            return student_BR - teacher_BR
        if beta == 1.0:
            return teacher_BR - student_BR
        mix_BR = (student_BR + math.log(1.0 - beta)).logaddexp(teacher_BR + math.log(beta))
        return beta * teacher_BR + (1.0 - beta) * student_BR - mix_BR


def _with_tokens(
    exps: ExperienceBatch, score_BR: Tensor, metrics: dict[str, float]
) -> tuple[ExperienceBatch, dict[str, float]]:
    mask_BR = exps["action_mask"].bool()
    exps["advantages"] = masked(score_BR, mask_BR)
    exps["returns"] = exps["advantages"].clone()
    mean = exps["advantages"].sum(-1).mean().item()
    return exps, metrics | {"advantages/mean": mean}


def _over_rows(name: str, value_B: Tensor) -> dict[str, float]:
    std = value_B.std().item() if len(value_B) > 1 else 0.0
    return {f"{name}/mean": value_B.mean().item(), f"{name}/std": std}
