"""Name the engine to Trinity."""

from __future__ import annotations

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1

_PROVIDES = {
    "logprobs",
    "seeded_by_key",
    "busy_s",
    "stop_strings",
    "scores",
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
