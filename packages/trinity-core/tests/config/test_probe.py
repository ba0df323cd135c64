"""Whether there may be GPUs is known without torch, which takes seconds to import."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from trinity.common.config import machine

CPU_BUILD = "cuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: Optional[str] = None\n"
GPU_BUILD = "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"


@pytest.fixture
def a_build(tmp_path, monkeypatch):
    """Return a function that makes the only torch there is one whose file of versions says so."""

    def make(version: str | None) -> None:
        package = tmp_path / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError('it was imported')\n")
        if version is not None:
            (package / "version.py").write_text(version)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "torch", raising=False)

    return make


@pytest.mark.parametrize(
    ("version", "has_device", "may"),
    [
        (CPU_BUILD, True, False),
        (GPU_BUILD, False, False),
        (GPU_BUILD, True, True),
        ("debug = False\n", True, True),  # it does not say: torch is asked
        (None, True, True),
    ],
)
def test_torch_is_asked_only_where_it_may_find_a_gpu(
    a_build, tmp_path, monkeypatch, version, has_device, may
) -> None:
    a_build(version)
    device = tmp_path / "gpu0"
    if has_device:
        device.touch()
    monkeypatch.setattr(machine, "_GPU_DEVICES", (str(device),))

    assert machine.may_have_gpus() is may


@pytest.mark.parametrize(("generation", "computes"), [(7, False), (8, True)])
def test_a_gpu_that_only_imitates_bfloat16_does_not_compute_it(
    monkeypatch, generation, computes
) -> None:
    """A V100 or a T4 holds such numbers, and vLLM refuses to compute with them there."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    found = SimpleNamespace(major=generation, total_memory=80)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: True)

    assert machine._gpus() == (1, computes, 80)


@pytest.mark.parametrize(
    ("name", "length", "heads"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 32768, 28),
        ("Qwen/Qwen2.5-7B", 131072, 28),
        ("Qwen/Qwen2.5-7B-Instruct-1M", None, 28),  # variants differ in their length alone
        ("Qwen/Qwen3-4B-Instruct-2507", None, 32),
        ("Qwen/Qwen3-8B", 40960, 32),
        ("nobody/nothing", None, None),
    ],
)
def test_a_published_model_that_is_not_here_is_known_by_its_name(name, length, heads) -> None:
    found = machine.probe(model_path=name)

    assert (found.model_max_len, found.model_num_heads) == (length, heads)
    assert (found.model is None) == (heads is None)
