"""Read golden cases and compare results with them.

A case is a function, its arguments, its inputs and the outputs of a published implementation. Where
the paper gives another answer (``differs_from_reference``), that one is right. Arrays are
``{"dtype", "shape", "data"}``; numbers that JSON lacks are the strings NaN, Infinity, -Infinity.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Case = dict[str, Any]

_NOT_IN_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_REFERENCE_WINS = {"differs_from_reference", "upstream_suspect", "upstream_error"}


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a file; the table of algorithm types is one case a type."""
    document = json.loads(path.read_text("utf-8"))
    if "algorithm_types" in document:
        return list(_cases_of_types(document))
    cases = document["cases"] if isinstance(document, dict) else document
    return [case | {"file": path.stem} for case in cases]


def expected_outputs(case: Case) -> Case | None:
    """Return what must come out; None: nothing is known, or an error must be raised."""
    if case.get("verdict", "ok") in _REFERENCE_WINS:
        reference = case.get("reference")
        return plain(reference["outputs"]) if reference else None
    outputs = case["outputs"]
    return None if "raises" in outputs else plain(outputs)


def unpacked(value: Any) -> Any:
    """Return the inputs with tensors where there were arrays."""
    if _is_array(value):
        dtype = getattr(torch, value["dtype"])
        return torch.tensor(plain(value["data"]), dtype=dtype).reshape(value["shape"])
    if isinstance(value, dict):
        return {key: unpacked(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [unpacked(entry) for entry in value]
    return _NOT_IN_JSON.get(value, value) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Return lists, dicts and numbers in place of tensors and arrays."""
    if isinstance(value, torch.Tensor):
        return value.detach().tolist()
    if _is_array(value):
        return plain(value["data"])
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return _NOT_IN_JSON.get(value, value) if isinstance(value, str) else value


def differences(case: Case, results: Case) -> list[str]:
    """Return where the results leave the case's outputs; results may hold more."""
    expected, given = expected_outputs(case), plain(results)
    where = case.get("compare_on_mask")
    if where and expected is not None:
        mask = plain(case["inputs"][where["mask"]])
        for name in where["keys"]:
            expected[name] = _where(mask, expected[name])
            given[name] = _where(mask, given[name])
    tolerance = case.get("tol", {})
    limits = (tolerance.get("rtol", 1e-6), tolerance.get("atol", 1e-9))
    return list(_differences(expected, given, "", limits))


def _differences(
    expected: Any, given: Any, path: str, limits: tuple[float, float]
) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(given, dict):
        for key, value in expected.items():
            if key in given:
                yield from _differences(value, given[key], f"{path}.{key}", limits)
            else:
                yield f"{path}.{key} is missing"
    elif isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        for index, pair in enumerate(zip(expected, given, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]", limits)
    elif not _is_close(expected, given, limits):
        yield f"{path}: expected {expected!r}, got {given!r}"


def _is_close(expected: Any, given: Any, limits: tuple[float, float]) -> bool:
    if not all(isinstance(value, (int, float)) for value in (expected, given)):
        return bool(expected == given)
    if math.isnan(expected) or math.isnan(given):
        return math.isnan(expected) and math.isnan(given)
    if math.isinf(expected) or math.isinf(given):
        return bool(expected == given)
    return bool(abs(expected - given) <= limits[1] + limits[0] * abs(expected))


def _where(mask: Any, values: Any) -> Any:
    if isinstance(mask, list):
        return [_where(*pair) for pair in zip(mask, values, strict=True)]
    return values if mask else None


def _is_array(value: object) -> bool:
    return isinstance(value, dict) and {"dtype", "shape", "data"} <= set(value)


def _cases_of_types(document: dict[str, Any]) -> Iterator[Case]:
    """Yield a case for each algorithm type, and for the defaults of each component."""
    kinds = {"kl_fn", "entropy_loss_fn", "advantage_fn", "policy_loss_fn", "sample_strategy"}
    for name, data in document["algorithm_types"].items():
        yield _table_case("algorithm_type", name, data)
    for kind, names in document["default_args"].items():
        for name, arguments in names.items():
            if kind in kinds:
                yield _table_case("default_args", f"{kind}/{name}", {"args": arguments})
    for name, where in document["advantage_compute_in_trainer"].items():
        yield _table_case("compute_in_trainer", name, {"compute_in_trainer": where})
    for name, data in document["policy_loss_inputs"].items():
        yield _table_case("policy_loss_inputs", name, {"inputs": sorted(data["inputs"])})


def _table_case(op: str, name: str, outputs: Case) -> Case:
    return {
        "id": f"algorithm_types/{op}/{name}",
        "file": "algorithm_types",
        "op": op,
        "fn": name,
        "args": {},
        "inputs": {},
        "outputs": outputs,
    }
