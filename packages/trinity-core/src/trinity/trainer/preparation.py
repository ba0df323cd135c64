"""Make of experiences the batch that the losses see.

    experiences -> rows -> rollout correction -> KL penalty -> values -> advantages -> reference

The two answers of a preference pair are neighbours: the chosen one in row 2 i, then the rejected.

B rows of a batch   R response
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trinity.algorithm.advantage_fn import apply_advantage
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import Experience
from trinity.common.metrics import Metrics, with_prefix
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from trinity.common.value_checks import TokenLimits
    from trinity.trainer.algorithm_parts import AlgorithmParts, StepAudit
    from trinity.trainer.critic import Critic
    from trinity.trainer.scorer import Scorer
    from trinity.trainer.torch_trainer import Stopwatch


class Preparation:
    """Fills in what the algorithm's parts name, each only where one of them does.

    Args:
        parts: of the algorithm.
        scorer: the policy and the reference.
        critic: None: the algorithm has none.
        audit: looks at what the advantage function does to its input.
        bypass_old_logprobs: the rollout's log-probabilities are the old ones, whatever the weights.
    """

    def __init__(
        self,
        parts: AlgorithmParts,
        *,
        scorer: Scorer,
        critic: Critic | None,
        audit: StepAudit,
        bypass_old_logprobs: bool,
    ) -> None:
        self._audit = audit
        self._parts = parts
        self._needs_reference = parts.loss_needs_reference
        self._needs_policy = "policy_logprob" in parts.policy_loss_fn.select_keys
        self._scorer = scorer
        self._critic = critic
        self._bypass = bypass_old_logprobs

    def batch_of(
        self, experiences: Sequence[Experience], watch: Stopwatch, *, version: int
    ) -> tuple[ExperienceBatch, Metrics]:
        """Return the batch, without rows or tokens where nothing is left to train on.

        Args:
            experiences: as the strategy sampled them.
            watch: counts the time.
            version: of the policy's weights.

        Raises:
            DataError: rows lack what the algorithm needs.
        """
        rows = as_rows(experiences, wants_pairs=self._parts.wants_pairs)
        check_rows(rows, limits=self._scorer.token_limits)
        if self._parts.advantage_fn is not None and self._parts.advantage_fn.compute_in_trainer():
            _forget_advantages(rows)
        try:
            batch = ExperienceBatch.from_experiences(rows)
        except ValueError as error:
            raise DataError(f"the experiences make no batch: {error}") from error
        metrics = self._correct(batch, watch)
        if not bool(batch.batch.get("kept_mask", batch["action_mask"]).any()):
            return _without_rejected(batch), metrics
        batch, numbers = self._penalised(batch, watch, version=version)
        metrics |= numbers
        self._add_values(batch, watch)
        advantage_fn = self._parts.advantage_fn
        if advantage_fn is not None and (
            advantage_fn.compute_in_trainer() or "advantages" not in batch
        ):
            with watch("advantage"), self._audit.unchanged("advantage_fn", batch.batch):
                batch, numbers = apply_advantage(advantage_fn, batch)
            metrics |= numbers
        batch = _without_rejected(batch)
        if len(batch) and self._needs_reference and "ref_logprob" not in batch:
            with watch("reference"):
                batch["ref_logprob"] = self._scorer.reference_logprobs(batch)
        if len(batch) and self._needs_policy:  # before the step, of the whole batch
            with watch("policy"):
                batch["policy_logprob"] = self._scorer.logprobs(batch)
        return batch, metrics

    def may_reuse(self, batch: ExperienceBatch, *, version: int) -> bool:
        """Return whether the batch's log-probabilities are the old ones."""
        if self._bypass or "rollout_weight" in batch:
            return True
        return all(exp.info.get("model_version") == version for exp in batch.experiences)

    def _correct(self, batch: ExperienceBatch, watch: Stopwatch) -> Metrics:
        """Add the weight of each token and which are kept; both ask the policy first."""
        correction = self._parts.rollout_correction
        if correction is None:
            return {}
        if "old_logprob" not in batch:
            raise DataError(
                "algorithm.rollout_correction compares log-probabilities with the rollout's, and "
                "the experiences have none. Set it to off."
            )
        rollout_BR, mask_BR = batch["old_logprob"], batch["action_mask"]
        with watch("rollout_correction"):
            own_BR = self._scorer.logprobs(batch)
        if "expert_mask" in batch:  # an expert's tokens were sampled by nobody we know
            rollout_BR = rollout_BR.where(~batch["expert_mask"].bool()[:, None], own_BR)
        corrected = correction.of(own_BR, rollout_BR, mask_BR)
        batch["sampled_logprob"], batch["old_logprob"] = rollout_BR, own_BR
        batch["rollout_weight"], batch["kept_mask"] = corrected.weight_BR, corrected.mask_BR
        return with_prefix("actor", corrected.metrics)

    def _penalised(
        self, batch: ExperienceBatch, watch: Stopwatch, *, version: int
    ) -> tuple[ExperienceBatch, Metrics]:
        penalty_fn = self._parts.kl_penalty_fn
        if penalty_fn is None:
            return batch, {}
        with watch("reference"):
            if "old_logprob" not in batch or not self.may_reuse(batch, version=version):
                if "old_logprob" in batch:
                    batch.batch.setdefault("sampled_logprob", batch["old_logprob"])
                batch["old_logprob"] = self._scorer.logprobs(batch)
            batch["ref_logprob"] = self._scorer.reference_logprobs(batch)
        old_BR, ref_BR = batch["old_logprob"], batch["ref_logprob"]
        if "expert_mask" in batch:  # no penalty for tokens that the policy did not sample
            batch["old_logprob"] = ref_BR.where(batch["expert_mask"].bool()[:, None], old_BR)
        batch, numbers = penalty_fn.apply_kl_penalty_to_reward(batch)
        batch["old_logprob"] = old_BR
        return batch, with_prefix("actor/kl_penalty", numbers)

    def _add_values(self, batch: ExperienceBatch, watch: Stopwatch) -> None:
        if self._critic is not None:
            with watch("critic"):
                batch["values"] = self._critic.values(batch)
        if self._parts.advantage_needs_entropies:
            with watch("entropy"):
                mean_change = "necs" in self._parts.advantage_needs
                batch.batch.update(self._scorer.entropies(batch, mean_change=mean_change))


def _without_rejected(batch: ExperienceBatch) -> ExperienceBatch:
    """Mask the rejected rows: they are not trained on, and their rewards counted in their group."""
    if len(batch) and "kept_mask" in batch:
        batch["action_mask"] = batch["action_mask"].bool() & batch["kept_mask"].bool()
    return batch


def _forget_advantages(rows: Sequence[Experience]) -> None:
    """Take away the zeros that a strategy gave an expert's rows: all rows get advantages here."""
    for row in rows:
        if row.info.get("is_expert"):
            row.advantages = row.returns = None


def as_rows(experiences: Sequence[Experience], *, wants_pairs: bool) -> list[Experience]:
    """Return one experience for each answer: chosen, rejected, chosen, ...

    Args:
        experiences: of prompts with two answers, or of one response each, which stay.
        wants_pairs: the loss compares the answers of a pair.

    Raises:
        DataError: it does, and some rows are no pairs; or it does not, and some are.
    """
    kinds = {experience.is_preference_pair for experience in experiences}
    if kinds == {False} and not wants_pairs:
        return list(experiences)
    if kinds != {True} or not wants_pairs:
        wanted, got = ("pairs", "single answers") if wants_pairs else ("single answers", "pairs")
        raise DataError(
            f"the loss wants {wanted}, and some of the rows are {got}. "
            "Use algorithm_type: dpo for rows of chosen and rejected, and for no others."
        )
    return [
        _row(experience, answer, name=name)
        for experience in experiences
        for name, answer in (("chosen", experience.chosen), ("rejected", experience.rejected))
        if answer is not None
    ]


def _row(experience: Experience, answer: Tensor, *, name: str) -> Experience:
    prompt = experience.tokens[: experience.prompt_length]
    return Experience(
        tokens=torch.cat((prompt, answer)),
        prompt_length=len(prompt),
        eid=replace(experience.eid, suffix=name),
        action_mask=torch.ones(len(answer), dtype=torch.bool),
        temperature=experience.temperature,
        info=experience.info,
    )


_NAMED = ("workflow", "task_index", "run", "row")  # in info: where an experience comes from


def check_rows(rows: Iterable[Experience], *, limits: TokenLimits) -> None:
    """Refuse a row that the model cannot be trained on, wherever it was stored.

    Raises:
        DataError: the message names the row.
    """
    for row in rows:
        lowest, highest = (int(bound) for bound in row.tokens.aminmax())
        problem = limits.problem(length=len(row.tokens), lowest=lowest, highest=highest)
        if problem:
            known = [f", {name} {row.info[name]}" for name in _NAMED if name in row.info]
            raise DataError(f"experience {row.eid}{''.join(known)}: {problem}")
