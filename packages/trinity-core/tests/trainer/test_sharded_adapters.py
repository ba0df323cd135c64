"""Adapters beside a base model that two processes shard (fsdp2), against ddp."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.fsdp import fully_shard

needs_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="no peft here")
can_leave_whole = "ignored_params" in inspect.signature(fully_shard).parameters
needs_torch = pytest.mark.skipif(not can_leave_whole, reason="an older torch shards all or nothing")
pytestmark = [pytest.mark.acceptance, needs_peft, needs_torch]

SCRIPT = Path(__file__).with_name("data_parallel.py")
STRATEGIES = ("ddp", "fsdp2")


@pytest.fixture(scope="module")
def of_two(tiny, tmp_path_factory):
    """Return what each of two processes found."""
    folder = tmp_path_factory.mktemp("adapters")
    (folder / "adapters").touch()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, SCRIPT, str(tiny), str(folder)]
    processes = [subprocess.Popen([*command, str(rank), "2"], env=environment) for rank in range(2)]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


def distance(found, expected):
    """Return the largest difference of two sets of weights with the same names."""
    assert found.keys() == expected.keys()
    return max((found[name].float() - expected[name].float()).abs().max() for name in found)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_weights_with_adapters_in_them_are_those_of_ddp(of_two, precision) -> None:
    ddp, fsdp2 = (of_two[0][strategy, precision] for strategy in STRATEGIES)

    assert distance(fsdp2["weights"], ddp["weights"]) <= 1e-5
    for name, value in ddp["metrics"].items():
        assert fsdp2["metrics"][name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


def test_three_steps_have_changed_the_adapted_weights(of_two) -> None:
    """Else the two would agree whatever they compute."""
    stepped = of_two[0]["fsdp2", "float32"]["weights"]

    assert distance(of_two[0]["fourth", "fsdp2"]["weights"], stepped) > 1e-4


def test_rows_that_begin_alike_are_one_prefix_there_too(of_two) -> None:
    assert distance(of_two[0]["fsdp2", "stem"], of_two[0]["ddp", "stem"]) <= 1e-5


def test_each_rank_holds_half_of_the_frozen_weights(of_two) -> None:
    (first, whole), (second, _) = (found["held"] for found in of_two)

    assert first + second == whole
    assert max(first, second) <= 0.6 * whole


def test_either_goes_on_from_what_the_other_has_saved(of_two) -> None:
    ddp, fsdp2 = (of_two[0]["fourth", strategy] for strategy in STRATEGIES)

    assert distance(fsdp2["weights"], ddp["weights"]) <= 1e-5


def test_weights_that_are_read_one_at_a_time_have_the_adapters_in_them(of_two) -> None:
    for strategy in STRATEGIES:
        whole, found = (of_two[0][kind, strategy] for kind in ("fourth", "streamed"))
        assert distance(found, whole["weights"]) == 0


def test_only_the_first_rank_gathers_weights_for_a_sync(of_two) -> None:
    assert of_two[1]["fsdp2", "float32"]["weights"] == {}
    assert of_two[1]["ddp", "float32"]["weights"].keys()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_reference_is_the_sharded_model_without_its_adapters(of_two, strategy) -> None:
    for found in of_two:
        seen = found["references", strategy]
        assert not seen["is_loaded"]
        assert torch.equal(seen["reference"], seen["read"])
        assert (seen["reference"] - seen["model"]).abs().max() > 1e-4
        assert torch.equal(seen["again"], seen["model"])  # the adapters are on again
