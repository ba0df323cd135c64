"""Golden cases: what another implementation computed, or a paper's formula gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

GOLDEN = Path(__file__).parent / "golden"


def pytest_generate_tests(metafunc):
    """Give a test the cases that its module's ``GOLDEN_CASES`` names: file, words of the id."""
    named = getattr(metafunc.module, "GOLDEN_CASES", {}).get(metafunc.function.__name__)
    if named is None:
        return
    file, *words = named
    cases = [
        case
        for case in json.loads((GOLDEN / f"{file}.json").read_text())
        if all(word in case["id"] for word in words)
    ]
    metafunc.parametrize("case", cases, ids=[case["id"] for case in cases])


@pytest.fixture
def inputs(case):
    """Return the inputs of the case as tensors, with the policy's own requiring a gradient."""
    values = {name: unpacked(value) for name, value in case["inputs"].items()}
    for name in ("logprob", "entropy", "values"):
        if name in values:
            values[name].requires_grad_()
    return values


@pytest.fixture
def assert_golden(case):
    """Return a function that compares results, by name, with the case's outputs."""
    tolerance = {"rel": case["tol"]["rtol"], "abs": case["tol"]["atol"]}

    def compare(**results):
        for name, result in results.items():
            expected = unpacked(case["outputs"][name])
            if isinstance(expected, dict):
                assert result == pytest.approx(expected, **tolerance), name
            else:
                assert_close(torch.as_tensor(result), torch.as_tensor(expected), **tolerance)

    return compare


def assert_close(result, expected, *, rel, abs):
    torch.testing.assert_close(
        result.detach().double(), expected.double(), rtol=rel, atol=abs, equal_nan=True
    )


def unpacked(value):
    if not isinstance(value, dict) or "data" not in value:
        return value
    dtype = torch.bool if value["dtype"] == "bool" else getattr(torch, value["dtype"])
    data = json.loads(json.dumps(value["data"]), parse_constant=float)
    return torch.tensor(_numbers(data), dtype=dtype).reshape(value["shape"])


def _numbers(data):
    if isinstance(data, list):
        return [_numbers(item) for item in data]
    return float(data) if isinstance(data, str) else data
