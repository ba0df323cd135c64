"""Brings ``trinity tinker``, and what ``model.tinker`` or several adapters turn on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.extend.component import AssetSpec, ComponentSpec
from trinity.extend.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

TRINITY_PLUGIN_API = 1
TRINITY_FOLDER_VIEWS = {"tinker": "trinity_tinker.folder_view:VIEW"}  # of `trinity view`

_OF_TRANSFORMERS = {"logprobs", "seeded_by_key", "busy_s", "stop_strings", "structure"}
_OF_TRANSFORMERS |= {"weights:memory", "scores", "in_flight", "adapters", "penalties", "lockstep"}
_OF_TORCH = {"ref_logprob", "entropys", "necs", "trained_batch", "preflight"}


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the command that serves the Tinker protocol."""
    return {
        "tinker": ComponentSpec(
            "trinity_tinker.tinker_command:app",
            "Serve models of this machine to clients of the Tinker API.",
        )
    }


@hookimpl
def trinity_rollout_engines() -> dict[str, ComponentSpec]:
    """Return the engines that sample with a Tinker service, and with an adapter for each row."""
    target = "trinity_tinker.client.engine:TinkerEngine"
    return {
        "tinker": ComponentSpec(
            target, provides=frozenset({"logprobs", "preflight", "stop_strings"})
        ),
        "multi_lora": ComponentSpec(
            "trinity_tinker.agents.engine:MultiLoRAEngine",
            "the engine transformers, with a LoRA adapter for each agent",
            provides=frozenset(_OF_TRANSFORMERS),
        ),
    }


@hookimpl
def trinity_trainers() -> dict[str, ComponentSpec]:
    """Return the trainers that train with a Tinker service, and an adapter for each agent."""
    target = "trinity_tinker.client.trainer:TinkerTrainer"
    return {
        "tinker": ComponentSpec(target, provides=frozenset({"ref_logprob", "trained_batch"})),
        "multi_lora": ComponentSpec(
            "trinity_tinker.agents.trainer:MultiLoRATrainer",
            "the trainer torch, with a LoRA adapter for each agent",
            provides=frozenset(_OF_TORCH),
        ),
    }


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return what the trainer and the engine need: the SDK, and a service to talk to."""
    return [
        AssetSpec(
            "service",
            "the Tinker SDK, and the address of a service in TINKER_BASE_URL",
            "100 MB",
            "trinity_tinker.client.connection:missing_service",
            needed_by=("rollout_engine/tinker", "trainer/tinker"),
        )
    ]


@hookimpl
def trinity_configure(config: Any) -> None:  # Any: trinity.common.config.Config
    """Tell the engine the address of the service, or the names of the adapters."""
    rollout = config.explorer.rollout_model
    if config.model.adapters and not config.model.tinker.enable:
        names = list(config.model.adapters)
        rollout.extra_engine_args = {"names": names, **rollout.extra_engine_args}
    if config.model.tinker.enable and config.model.tinker.base_url:
        rollout.extra_engine_args = {
            "base_url": config.model.tinker.base_url,
            **rollout.extra_engine_args,
        }


@hookimpl
def trinity_config_notes(config: Any) -> Iterable[str]:  # Any: trinity.common.config.Config
    """Return what a run with a Tinker service is refused for."""
    if not config.model.tinker.enable:
        return []
    from trinity_tinker.client.refusals import unsupported

    return [f"refused at the start: {line}" for line in unsupported(config)]
