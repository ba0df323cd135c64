"""Log-probabilities of a batch, from a Tinker service.

B rows of a batch   R response   L tokens of a row
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from trinity.common.value_checks import TokenLimits
from trinity.errors import ConfigError

from trinity_tinker.client.connection import finished, naming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor
    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience

    from trinity_tinker.client.start import Start

__all__ = ["ServiceScorer", "datums_of", "scores_in"]


class ServiceScorer:
    """Scores batches with the adapter that is trained, or with what the run started from.

    Args:
        policy: gives the TrainingClient (Any: of the SDK).
        service: a ServiceClient.
        start: what the run started from; the reference.
        max_len: most tokens of a row; None: as many as the service takes.
    """

    def __init__(
        self,
        policy: Callable[[], Any],
        *,
        service: Any,
        start: Start,
        max_len: int | None,
    ) -> None:
        self._policy = policy
        self._service = service
        self._start = start
        self._reference: Any = None  # a SamplingClient, once it is needed
        self.token_limits = TokenLimits(max_len=max_len or sys.maxsize, vocab=None)

    def logprobs(self, batch: ExperienceBatch) -> Tensor:
        """Return the policy's log-probabilities ``[B, R]``, without a gradient."""
        data = datums_of(batch.experiences)
        with naming("forward"):
            output = finished(self._policy().forward(data, "cross_entropy"))
        return scores_in(output, batch)

    def reference_logprobs(self, batch: ExperienceBatch) -> Tensor:
        """Return the reference's log-probabilities ``[B, R]``."""
        import tinker

        with naming("compute_logprobs"):
            if self._reference is None:
                self._reference = finished(
                    self._service.create_sampling_client(**self._start.sampled)
                )
            asked = [
                self._reference.compute_logprobs(tinker.ModelInput.from_ints(exp.tokens.tolist()))
                for exp in batch.experiences
            ]
            scored = [torch.tensor(finished(one)[1:], dtype=torch.float32) for one in asked]
        return _responses(batch, scored)

    def entropies(self, batch: ExperienceBatch, *, mean_change: bool) -> dict[str, Tensor]:
        """Refuse: the service tells none.

        Raises:
            ConfigError: always.
        """
        del batch, mean_change
        raise ConfigError("the algorithm needs entropies, which a Tinker service does not tell.")


def datums_of(
    experiences: list[Experience], inputs_BR: Mapping[str, Tensor] | None = None
) -> list[Any]:  # Any: a Datum
    """Return each row as the service takes it: position i predicts token i + 1.

    Args:
        experiences: the rows.
        inputs_BR: of the loss, for the tokens of each response; None: ``weights`` of 1.
    """
    import tinker

    data = []
    for number, exp in enumerate(experiences):
        tokens, first = exp.tokens.tolist(), exp.prompt_length - 1
        length = len(tokens) - exp.prompt_length
        rows = {name: value_BR[number, :length] for name, value_BR in (inputs_BR or {}).items()}
        inputs: dict[str, Any] = {"target_tokens": tokens[1:]}  # Any: lists of numbers
        for name, row in (rows or {"weights": torch.ones(length)}).items():
            inputs[name] = [0.0] * first + row.tolist()
        datum = tinker.Datum(
            model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs
        )
        data.append(datum)
    return data


def scores_in(output: Any, batch: ExperienceBatch) -> Tensor:  # Any: a ForwardBackwardOutput
    """Return the log-probabilities ``[B, R]`` that a pass has computed."""
    scored = [one["logprobs"].to_torch().flatten() for one in output.loss_fn_outputs]
    return _responses(batch, scored)


def _responses(batch: ExperienceBatch, scored: list[Tensor]) -> Tensor:
    """Return the scores ``[L - 1]`` of each row at its response, padded with 0 to ``[B, R]``."""
    logprob_BR = torch.zeros(batch["action_mask"].shape, dtype=torch.float32)
    for row, (exp, scores) in enumerate(zip(batch.experiences, scored, strict=True)):
        response = scores[exp.prompt_length - 1 :]
        logprob_BR[row, : len(response)] = response
    return logprob_BR
