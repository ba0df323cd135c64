"""Brings ``trinity tinker``, the pages of its journal, and what ``model.tinker`` turns on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.extend.component import AssetSpec, ComponentSpec
from trinity.extend.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

TRINITY_PLUGIN_API = 1
TRINITY_FOLDER_VIEWS = {"tinker": "trinity_tinker.folder_view:VIEW"}  # of `trinity view`


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
    """Return the engine that samples with a Tinker service."""
    target = "trinity_tinker.client.engine:TinkerEngine"
    return {
        "tinker": ComponentSpec(
            target, provides=frozenset({"logprobs", "preflight", "stop_strings"})
        )
    }


@hookimpl
def trinity_trainers() -> dict[str, ComponentSpec]:
    """Return the trainer that trains with a Tinker service."""
    target = "trinity_tinker.client.trainer:TinkerTrainer"
    return {"tinker": ComponentSpec(target, provides=frozenset({"ref_logprob", "trained_batch"}))}


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
    """Tell the engine the address of the service."""
    rollout = config.explorer.rollout_model
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
