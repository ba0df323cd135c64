"""What users give an experience becomes what torch would make of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from trinity.common.value_checks import as_tensor

GIVEN = {
    "whole": [3, 1, 2],
    "a tuple": (3, 1, 2),
    "floats": [-0.1, -2.5, 1e-30, 1e300, math.inf, math.nan],
    "floats and whole": [0.1, 2, 3],
    "whole, then floats": [1, 2.5],
    "with a truth value": [1, True, 0],
    "truth values": [True, False],
    "nothing": [],
    "rows": [[1, 2], [3, 4]],
    "of numpy": [np.int64(3), np.int64(4)],
    "an array": np.array([1, 2]),
    "tensors": [torch.tensor(3), torch.tensor(4)],
    "a number, then a tensor": [1, torch.tensor(4)],
    "ragged": [[1], [2, 3]],
    "a hole": [1, None],
    "a float and a hole": [0.5, None],
    "a word": [1, "a"],
    "too large": [1, 2**64],
    "large": [1, 2**63],
}


@pytest.mark.parametrize("dtype", [None, torch.float32])
@pytest.mark.parametrize("name", GIVEN)
def test_numbers_become_what_torch_makes_of_them(name: str, dtype: torch.dtype | None) -> None:
    try:
        wanted = torch.as_tensor(GIVEN[name], dtype=dtype)
    except Exception as error:  # noqa: BLE001 -- whichever it is
        with pytest.raises(type(error)):
            as_tensor(GIVEN[name], dtype)
        return

    made = as_tensor(GIVEN[name], dtype)

    assert made.dtype == wanted.dtype
    assert torch.equal(made.nan_to_num(), wanted.nan_to_num())
