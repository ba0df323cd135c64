"""``scripts/gpu_check.py``: how it starts what is not here, vLLM on a GPU."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def test_vllm_computes_in_the_process_that_has_asked_for_gpus(monkeypatch) -> None:
    """One that vLLM forks from it cannot use them."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    gpu_check = importlib.import_module("gpu_check")
    monkeypatch.setitem(os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    vllm = ModuleType("vllm")

    def started(**_):
        raise RuntimeError(os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"])

    vllm.LLM, vllm.SamplingParams = started, dict
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(gpu_check, "_model", lambda sizes: "nowhere")

    with pytest.raises(RuntimeError, match=r"^0$"):
        gpu_check.vllm_sleep(gpu_check.SMALL)
