"""Fifteen damaged configurations: each ends in a clear message, or means what it says.

``python benchmarks/fuzz_configurations.py`` takes five hundred.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[4] / "benchmarks/fuzz_configurations.py"


@pytest.fixture
def fuzzing(monkeypatch):
    """Return the module of the benchmark."""
    monkeypatch.syspath_prepend(str(FILE.parent))
    spec = importlib.util.spec_from_file_location("fuzz_configurations", FILE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_fifteen_damaged_configurations_are_told_or_taken_as_they_are(
    fuzzing, builtin_only, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bases = fuzzing.bases(tmp_path)
    fuzz = fuzzing.Fuzz(bases={"small": bases["small"]}, folder=tmp_path)

    results = [(case, fuzz.taken(case)) for case in fuzz.cases(15, seed=4)]

    wrong = [f"{c.kind} {c.path} = {c.value!r}: {r}" for c, r in results if not r.is_fine]
    assert wrong == []
    assert any(result.outcome == "ok" for _, result in results)


def test_a_change_that_nobody_can_see_is_found(fuzzing, builtin_only, tmp_path) -> None:
    bases = fuzzing.bases(tmp_path)
    fuzz = fuzzing.Fuzz(bases={"small": bases["small"]}, folder=tmp_path)
    text = fuzzing.yaml.safe_dump(bases["small"]).encode()

    unchanged = fuzzing.Case(kind="odd number", text=text, base="small", path=("seed",), value=8)

    assert fuzz.taken(unchanged).outcome == "silent"


@pytest.mark.parametrize("key", ["model.model_path", "buffer.explorer_input.taskset.path"])
def test_a_path_that_no_disk_can_hold_is_told(a_run, cpu, builtin_only, key) -> None:
    from trinity.common.config import check, load_config, resolve

    config = resolve(load_config(a_run(), overrides=[f"{key}={'x' * 5000}"]), cpu)

    (problem,) = [p for p in check(config, cpu) if p.severity == "error"]
    assert problem.path == key
    assert "there is no" in problem.message
