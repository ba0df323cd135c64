"""Cut a batch into micro-batches by tokens.

B rows of a batch or micro-batch   L tokens of a row   R response   N scored tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

__all__ = ["ModelInputs", "model_inputs", "pad_to_width", "plan_microbatches"]


def plan_microbatches(
    lengths: Sequence[int], *, max_tokens: int, max_padding: int, keep_order: bool = False
) -> list[list[int]]:
    """Return the row numbers of each micro-batch; together they are all rows, each once.

    Rows of like length share a micro-batch, so that little is padded. A micro-batch is full when
    one more row would make it, padded to its longest row, larger than ``max_tokens``, or would
    bring its padding above ``max_padding``. A row that is longer than ``max_tokens`` stands alone.

    >>> plan_microbatches([3, 9, 3, 8], max_tokens=18, max_padding=4)
    [[1, 3], [0, 2]]
    >>> plan_microbatches([3, 9, 3, 8], max_tokens=18, max_padding=4, keep_order=True)
    [[0], [1], [2], [3]]

    Args:
        lengths: tokens of each row.
        max_tokens: budget of a micro-batch, padding counted.
        max_padding: padding that is cheaper than one more micro-batch.
        keep_order: rows stay in the batch's order.
    """
    rows = range(len(lengths))
    ordered = rows if keep_order else sorted(rows, key=lambda row: -lengths[row])
    plan: list[list[int]] = []
    longest = total = 0
    for row in ordered:
        longest, total = max(longest, lengths[row]), total + lengths[row]
        padded = longest * (len(plan[-1]) + 1) if plan else 0
        if plan and padded <= max_tokens and padded - total <= max_padding:
            plan[-1].append(row)
            continue
        plan.append([row])
        longest = total = lengths[row]
    return plan


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInputs:
    """Some rows, padded on the right, and which of their tokens are scored.

    No attention mask is needed: a causal model's real tokens stand before the padding and never see
    it.
    """

    tokens_BL: Tensor
    rows_N: Tensor  # row of each scored token
    columns_N: Tensor  # its place in the response
    positions_N: Tensor  # place in the sequence of the token before it, which predicts it
    targets_N: Tensor
    temperature_N: Tensor
    width: int  # R of the whole batch

    def to(self, device: torch.device) -> ModelInputs:
        """Return the same on a device."""
        moved = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in self.__dataclass_fields__
            if name != "width"
        }
        return ModelInputs(**moved, width=self.width)


def model_inputs(experiences: Sequence[Experience], action_mask_BR: Tensor) -> ModelInputs:
    """Return the model's view of these rows; tokens where the mask is True are scored."""
    longest = max(len(exp.tokens) for exp in experiences)
    tokens_BL = torch.zeros((len(experiences), longest), dtype=torch.int64)
    for row, exp in enumerate(experiences):
        tokens_BL[row, : len(exp.tokens)] = exp.tokens
    prompt_B = torch.tensor([exp.prompt_length for exp in experiences])
    # Greedy rollouts report log-probabilities at temperature 1.
    temperature_B = torch.tensor([exp.temperature or 1.0 for exp in experiences])
    rows_N, columns_N = action_mask_BR.nonzero(as_tuple=True)
    places_N = prompt_B[rows_N] + columns_N
    return ModelInputs(
        tokens_BL=tokens_BL,
        rows_N=rows_N,
        columns_N=columns_N,
        positions_N=places_N - 1,
        targets_N=tokens_BL[rows_N, places_N],
        temperature_N=temperature_B[rows_N],
        width=action_mask_BR.shape[1],
    )


def pad_to_width(values_N: Tensor, inputs: ModelInputs) -> Tensor:
    """Return ``[B, R]`` with each scored token's value at its place and 0 elsewhere.

    R is that of the whole batch, whatever the micro-batch, so that a loss that divides by R is cut
    without error.
    """
    padded_BR = values_N.new_zeros((len(inputs.tokens_BL), inputs.width))
    return padded_BR.index_put((inputs.rows_N, inputs.columns_N), values_N)
