"""``probe``: what the machine has. It looks and changes nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from trinity.common.config.memory import ModelShape, known_settings
from trinity.common.config.model import model_file

_CPUINFO = Path("/proc/cpuinfo")
#: what a driver of GPUs shows: two makers' on Linux, and Windows' for Linux inside it
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86, x86, arm


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a configuration is resolved for."""

    num_gpus: int = 0
    num_cores: int = 1
    has_bf16: bool = False  # of the GPUs if there are any, else of the CPU
    model_max_len: int | None = None  # max_position_embeddings of the model, where it can be read
    model_num_heads: int | None = None  # of its attention, where it can be read
    gpu_bytes: int | None = None  # memory of the smallest GPU
    model: ModelShape | None = None  # where its config.json is a decoder's
    is_one_process: bool = False  # a run with --local: `num_gpus` are what that uses
    gpus_over_ray: tuple[int, ...] = ()  # of such a run: of each machine, without --local


def probe(*, model_path: str = "") -> Machine:
    """Return what this machine has; with a model, what its ``config.json`` says, or is known to."""
    model = _model_settings(model_path) or known_settings(model_path)
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    num_gpus, gpus_have_bf16, gpu_bytes = _gpus() if may_have_gpus() else (0, False, None)
    return Machine(
        num_gpus=num_gpus,
        num_cores=own or 1,
        has_bf16=gpus_have_bf16 if num_gpus else _cpu_has_bf16(),
        model_max_len=_count(model, "max_position_embeddings"),
        model_num_heads=_count(model, "num_attention_heads"),
        gpu_bytes=gpu_bytes,
        model=ModelShape.of(model),
    )


def model_vocab(model_path: str) -> int | None:
    """Return how many tokens a model has; None: its ``config.json`` cannot be read, or is mute."""
    return _count(_model_settings(model_path), "vocab_size")


def may_have_gpus() -> bool:
    """Return whether torch is worth asking: its build is one for GPUs, and the system shows one.

    Asking means importing torch, which takes seconds.
    """
    return "torch" in sys.modules or (
        _torch_is_for_gpus() and any(Path(device).exists() for device in _GPU_DEVICES)
    )


def _torch_is_for_gpus() -> bool:
    """Return what torch's file of versions says; True where it does not say."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return found is not None
    try:
        text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return True
    builds = re.findall(r"^(?:cuda|hip|xpu)\b[^=\n]*=\s*(\S+)", text, flags=re.MULTILINE)
    return not builds or any(build != "None" for build in builds)


def _gpus() -> tuple[int, bool, int | None]:
    """Return how many GPUs torch can use, whether they compute bfloat16, and their memory."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return 0, False, None
    sizes = [torch.cuda.get_device_properties(i).total_memory for i in range(count)]
    return count, torch.cuda.is_bf16_supported(including_emulation=False), min(sizes)


def _cpu_has_bf16() -> bool:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    lines = [line for line in text.splitlines() if line.lower().startswith(("flags", "features"))]
    return bool(lines) and bool(_BF16_FLAGS & set(lines[0].split()))


def _model_settings(model_path: str) -> dict[str, object]:
    """Return what the model says of its text part; empty: it cannot be read."""
    file = model_file(model_path, "config.json")
    if file is None:
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    text = settings.get("text_config", settings) if isinstance(settings, dict) else {}
    return text if isinstance(text, dict) else {}


def _count(settings: dict[str, object], name: str) -> int | None:
    number = settings.get(name)
    return number if isinstance(number, int) and number > 0 else None
