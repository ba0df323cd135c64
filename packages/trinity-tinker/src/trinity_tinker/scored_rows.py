"""Texts and the tokens that are scored in them, cut into micro-batches and put together again.

B rows of a micro-batch   L tokens of a row   N scored tokens of a row   R most of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from trinity.trainer.microbatch import ModelInputs, plan_microbatches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trinity_tinker.gradients import GradientTrainer

__all__ = ["ScoredRow", "backward", "model_inputs"]

MAX_PADDING = 128  # tokens that cost less than one more micro-batch


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRow:
    """A text, and the tokens whose log-probabilities are wanted, whatever comes next in it."""

    tokens_L: Tensor  # int64
    slots_N: Tensor  # int64: the token of the text after which each is scored
    targets_N: Tensor  # int64: what is scored


def backward(
    trainer: GradientTrainer,
    run: str,
    rows: Sequence[ScoredRow],
    loss: Callable[[int, Tensor], Tensor],
    *,
    max_tokens: int,
    forward_only: bool = False,
) -> tuple[list[Tensor], float]:
    """Add the gradient of the summed loss of all rows to those of a run.

    Args:
        trainer: of the run.
        run: that began.
        rows: what is scored.
        loss: number of a row and its log-probabilities ``[N]``, to a scalar.
        max_tokens: most tokens of a micro-batch, padding counted.
        forward_only: compute no gradient.

    Returns:
        The log-probabilities ``[N]`` of each row, on the CPU, and the sum of the losses.

    Raises:
        DataError: loss or gradient is not finite; the run is as before.
    """
    plan = plan_microbatches(
        [[len(row.tokens_L)] for row in rows], max_tokens=max_tokens, max_padding=MAX_PADDING
    )

    def split(number: int, logprob_BR: Tensor) -> dict[int, Tensor]:
        return {
            row: logprob_BR[place, : len(rows[row].slots_N)]
            for place, row in enumerate(plan[number])
        }

    def loss_of_part(number: int, logprob_BR: Tensor) -> Tensor:
        found = split(number, logprob_BR).items()
        return torch.stack([loss(row, logprob_N) for row, logprob_N in found]).sum()

    parts = [model_inputs([rows[row] for row in part]) for part in plan]
    scored, total = trainer.backward(run, parts, loss_of_part, forward_only=forward_only)
    logprobs: dict[int, Tensor] = {}
    for number, logprob_BR in enumerate(scored):
        logprobs |= split(number, logprob_BR)
    return [logprobs[row] for row in range(len(rows))], total


def model_inputs(rows: Sequence[ScoredRow]) -> ModelInputs:
    """Return the model's view of rows, padded on the right.

    >>> long, short = (
    ...     ScoredRow(tokens_L=tokens, slots_N=slots, targets_N=slots + 6)
    ...     for tokens, slots in (
    ...         (torch.tensor([5, 6, 7]), torch.tensor([0, 2, 2])),
    ...         (torch.tensor([5]), torch.tensor([0])),
    ...     )
    ... )
    >>> inputs = model_inputs([long, short])
    >>> inputs.tokens_PL.tolist(), inputs.slots_N.tolist(), inputs.shape
    ([[5, 6, 7], [5, 0, 0]], [0, 2, 2, 3], (2, 3))
    """
    tokens_BL = torch.nn.utils.rnn.pad_sequence([row.tokens_L for row in rows], batch_first=True)
    counts_B = torch.tensor([len(row.slots_N) for row in rows])
    rows_N = torch.repeat_interleave(torch.arange(len(rows)), counts_B)
    return ModelInputs(
        tokens_PL=tokens_BL,
        suffixes_GK=None,
        positions_PL=None,
        ends_PL=None,
        rows_N=rows_N,
        columns_N=torch.cat([torch.arange(count) for count in counts_B.tolist()]),
        slots_N=torch.cat([row.slots_N for row in rows]) + rows_N * tokens_BL.shape[1],
        targets_N=torch.cat([row.targets_N for row in rows]),
        temperature_N=None,
        shape=(len(rows), int(counts_B.max())),
    )
