"""The rehearsal on pretend GPUs: ``nox -s gpu_rehearsal`` builds them and sets PRETEND_CUDA."""

from __future__ import annotations

import os

import pytest

if not os.environ.get("PRETEND_CUDA"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def gpus_counted_from_zero():
    """Forget what an earlier test allocated at its peak."""
    import gc

    import torch

    gc.collect()
    torch.cuda.reset_peak_memory_stats()
