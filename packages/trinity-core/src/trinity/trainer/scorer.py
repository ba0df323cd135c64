"""Ask models about all tokens of a batch, a micro-batch at a time.

B rows of a batch   R response
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trinity.common.value_checks import TokenLimits
from trinity.trainer.lora import without_adapters
from trinity.trainer.microbatch import plan_packs, select_inputs
from trinity.trainer.policy import Wanted
from trinity.trainer.prefix_tree import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trinity.common.batch import ExperienceBatch
    from trinity.common.config import Config
    from trinity.trainer.algorithm_parts import AlgorithmParts
    from trinity.trainer.microbatch import ModelInputs, Plan
    from trinity.trainer.policy import Policy
    from trinity.trainer.prefix_tree import PrefixSharing
    from trinity.trainer.ranks import Ranks

logger = logging.getLogger(__name__)

MAX_PADDING = {"cuda": 4096}  # tokens that cost less than one more micro-batch; elsewhere 128
ROWS_OF_PAIR = 2  # chosen and rejected, which stay in one micro-batch


class Scorer:
    """Cuts batches and scores them with the policy or with the frozen reference.

    Args:
        config: a resolved configuration.
        parts: of the algorithm.
        policy: the model that is trained.
        load_reference: returns the model that it started as; called when it is first asked. None:
            the policy without its adapters is that model.
        ranks: the processes that share each batch.
    """

    def __init__(
        self,
        config: Config,
        *,
        parts: AlgorithmParts,
        policy: Policy,
        load_reference: Callable[[], Policy] | None,
        ranks: Ranks,
    ) -> None:
        self._config = config
        self._parts = parts
        self._keeps_order = not parts.algorithm.setting("can_balance_batch")
        self._policy = policy
        self._load_reference = load_reference
        self._ranks = ranks
        self.reference: Policy | None = None  # None: not loaded so far
        self._is_told = False  # that rows are computed apart

    @property
    def token_limits(self) -> TokenLimits:
        """Return what a row may be: what the engines make, and what the model knows."""
        given = (self._config.model, self._config.explorer.rollout_model)
        longest = max(part.max_model_len or 0 for part in given)
        vocab = int(self._policy.module.config.vocab_size)
        return TokenLimits(max_len=longest or sys.maxsize, vocab=vocab)

    def plan(self, batch: ExperienceBatch, *, policy: Policy | None = None) -> Plan:
        """Return the packs of each micro-batch, as a model (None: the policy) can take them."""
        policy = policy or self._policy
        has_pairs = self._parts.wants_pairs
        rows = [exp.tokens.numpy() for exp in batch.experiences]
        budget = self._config.trainer.max_token_len_per_gpu or 4096
        return plan_packs(
            rows,
            max_tokens=self._ranks.max_tokens(budget, num_tokens=sum(map(len, rows))),
            max_padding=MAX_PADDING.get(policy.device.type, 128),
            keep_order=self._keeps_order,
            sharing=self._sharing(batch, policy),
            together=ROWS_OF_PAIR if has_pairs else 1,
            dp_size=self._ranks.dp_size,
            is_balanced=self._config.trainer.balance_batch,
        )

    def _sharing(self, batch: ExperienceBatch, policy: Policy) -> PrefixSharing | None:
        """Return how rows may be computed as one; on a GPU only where that saves most of them."""
        how = self._config.trainer.prefix_sharing
        if how == "off":
            return None
        sharing = policy.sharing
        if how == "on" or policy.device.type == "cpu":
            return sharing
        prompts = sum(exp.prompt_length for exp in batch.experiences)
        responses = sum(exp.response_length for exp in batch.experiences)
        if responses <= prompts:
            return sharing
        if not self._is_told:
            self._is_told = True
            logger.info(
                "trainer.prefix_sharing is auto: responses have %d tokens and prompts %d, so rows "
                "are computed apart on the GPU. Set it to on to compute prompts once.",
                responses,
                prompts,
            )
        # A row that extends another needs no mask, which would be in the way of fast kernels.
        return replace(sharing, ways=sharing.ways & {"chain"})

    def logprobs(self, batch: ExperienceBatch) -> Tensor:
        """Return the policy's log-probabilities ``[B, R]``, without a gradient, on the CPU."""
        return self._logprobs(self._policy, batch)

    def reference_logprobs(self, batch: ExperienceBatch) -> Tensor:
        if self._load_reference is None:
            with without_adapters(self._policy.module):
                return self._logprobs(self._policy, batch)
        if self.reference is None:
            self.reference = self._load_reference()
        return self._logprobs(self.reference, batch)

    @torch.no_grad()
    def entropies(self, batch: ExperienceBatch, *, mean_change: bool) -> dict[str, Tensor]:
        """Return fields ``[B, R]`` of the policy at each token, on the CPU.

        ``entropys``: the entropy, in nats; with ``mean_change`` ``necs``: the mean of S, see
        :func:`trinity.trainer.policy.score_tokens`.
        """
        names = ["entropys", "necs"] if mean_change else ["entropys"]
        fields = {name: torch.zeros(batch["action_mask"].shape) for name in names}
        for rows, inputs, num_passes in self._inputs(self._policy, batch):
            wanted = Wanted(entropy=False, mean_change=mean_change, num_passes=num_passes)
            scores = self._policy.score(inputs, wanted)
            for name, part_BR in zip(names, (scores.entropy, scores.mean_change), strict=False):
                assert part_BR is not None
                fields[name][rows] = part_BR.float().cpu()
        return {name: self._ranks.all_reduce(field_BR) for name, field_BR in fields.items()}

    @torch.no_grad()
    def _logprobs(self, policy: Policy, batch: ExperienceBatch) -> Tensor:
        logprob_BR = torch.zeros(batch["action_mask"].shape)
        for rows, inputs, num_passes in self._inputs(policy, batch):
            scores = policy.score(inputs, Wanted(num_passes=num_passes))
            logprob_BR[rows] = scores.logprob.float().cpu()
        return self._ranks.all_reduce(logprob_BR)

    def _inputs(
        self, policy: Policy, batch: ExperienceBatch
    ) -> Iterator[tuple[list[int], ModelInputs, int]]:
        """Yield rows, what the model sees of them, and the passes that all ranks make."""
        for step in self._ranks.micro_steps(self.plan(batch, policy=policy)):
            if step.packs is None:
                policy.dummy_pass(num_passes=step.num_passes)
                continue
            _, inputs = select_inputs(batch, step.packs)
            yield rows_of(step.packs), inputs, step.num_passes
