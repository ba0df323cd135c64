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
    alone = data_parallel.a_spread_trainer(tiny, "apart")
    alone.train_step(data_parallel.rows(), step=1)
    alone.save(folder / "alone")
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


@pytest.mark.parametrize("way", data_parallel.WAYS)
def test_ranks_that_share_the_weights_have_the_gradient_of_one(of_two, tiny, way) -> None:
    """Rows apart leave one rank idle in the last round; a stem takes two passes of both."""
    expected, stems = data_parallel.gradient_of(data_parallel.a_spread_trainer(tiny, way), way)

    for found in of_two[0]:
        gradient, stems = found[way]
        assert (gradient - expected).norm() <= 1e-6 * expected.norm()
    assert [bool(stem) for stem in stems].count(True) == (way == "stem")
    assert len(stems) % 2 == (way == "apart")


def test_their_checkpoint_is_that_of_one_process_and_so_is_what_they_go_on_from(
    of_two, tiny
) -> None:
    """One process trains, two go on with parts of its weights, and one goes on from these."""
    (first, second), folder = of_two
    alone, after = (data_parallel.a_spread_trainer(tiny, "apart") for _ in range(2))
    alone.load(folder / "alone")
    metrics = alone.train_step(data_parallel.rows(), step=2)
    after.load(folder / "spread")

    for name, value in metrics.items():
        if not name.startswith(("time/", "perf/")):
            assert first["spread"]["metrics"][name] == pytest.approx(value, rel=1e-5, abs=1e-6)
    for number in (3, 4):
        expected, found = (
            trainer.train_step(data_parallel.rows(), step=number) for trainer in (alone, after)
        )
        assert found["actor/loss"] == pytest.approx(expected["actor/loss"], abs=1e-5)
    assert first["spread"]["error"] == second["spread"]["error"]
    assert "train step 3 stopped" in first["spread"]["error"]
