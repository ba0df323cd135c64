"""Two processes that train one model, against one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("data_parallel.py")
_spec = importlib.util.spec_from_file_location("data_parallel", SCRIPT)
data_parallel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(data_parallel)


@pytest.fixture(scope="module")
def of_two(tiny, tmp_path_factory):
    """Return what each of two processes found."""
    folder = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(tiny), str(folder), str(rank), "2"], env=environment
        )
        for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)], folder


def test_two_processes_have_the_gradient_of_one(of_two, tiny):
    (first, second), _ = of_two
    trainer = data_parallel.a_trainer(tiny)
    batch, _ = trainer._preparation.batch_of(
        data_parallel.rows(), lambda name: nullcontext(), version=0
    )
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    expected = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])

    assert min(first["own"], second["own"]) >= 1
    for found in (first, second):
        assert (found["gradient"] - expected).norm() <= 5e-6 * expected.norm()


def test_they_stay_together_and_report_the_whole_batch(of_two, tiny):
    (first, second), _ = of_two
    expected = data_parallel.trained(data_parallel.a_trainer(tiny))

    assert first["metrics"] == second["metrics"]
    assert all(torch.equal(w, second["weights"][name]) for name, w in first["weights"].items())
    for name in ("actor/loss", "actor/kl_loss", "actor/entropy_loss", "critic/vf_loss"):
        assert first["metrics"][name] == pytest.approx(expected["metrics"][name], rel=1e-3), name
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(first["weights"][name], weight, rtol=1e-3, atol=1e-4)


def test_an_error_of_one_is_everybodys_and_one_of_them_saves(of_two):
    (first, second), folder = of_two

    assert "train step 9 stopped" in first["error"]
    assert first["error"] == second["error"]
    assert (folder / "saved").is_dir()
