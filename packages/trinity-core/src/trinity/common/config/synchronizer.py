"""``synchronizer``: when and how new weights reach the engines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.base import GROUPS, SIDES, Lowercase, StrictModel, core, machine, other

LEAST_LOAD_S = 600.0  # of weights, however short sync_timeout is: it waits for replies under way
_METHODS = {"online": "nccl", "offline": "checkpoint"}
_STYLES = {"dynamic_by_explorer": "explorer_driven", "dynamic_by_trainer": "trainer_driven"}


def _method(value: Any) -> Any:
    return _METHODS.get(value.lower(), value.lower()) if isinstance(value, str) else value


def _style(value: Any) -> Any:
    return _STYLES.get(value.lower(), value.lower()) if isinstance(value, str) else value


class SynchronizerConfig(StrictModel):
    """``synchronizer``: when and how new weights reach the engines."""

    sync_method: Annotated[str, BeforeValidator(_method)] = machine(
        "nccl",
        "transport: memory, gloo, nccl (online), ipc, checkpoint (offline), or a plugin's",
    )
    sync_style: Annotated[
        Literal["fixed", "explorer_driven", "trainer_driven", "fully_async"],
        BeforeValidator(_style),
    ] = core(
        "fixed",
        "when weights move: at fixed steps of both sides, or of one side; fully_async: groups "
        "start and are trained one by one, asynchronously",
    )
    sync_interval: int = core(1, "steps between two weight syncs", ge=1)
    explorer_sync_interval: int | None = core(
        None,
        "explore steps between two weight syncs, with explorer_driven; default: sync_interval",
        ge=1,
    )
    trainer_sync_interval: int | None = core(
        None,
        "train steps between two weight syncs, with trainer_driven; default: sync_interval",
        ge=1,
    )
    in_flight: Annotated[Literal["finish", "abort", "keep"], Lowercase] = core(
        "finish",
        "active replies during a weight sync: finish with the old weights, start again, or "
        "continue with the new weights",
    )
    sync_offset: int = core(0, "steps that the explorer runs ahead (off-policy), with fixed", ge=0)
    standalone: bool | None = other(
        None,
        "whether explorer and trainer are separate, concurrent runs that share a SQL buffer; "
        "false: mode explore only fills it, and mode train trains once on its rows; default: true",
        used_by=SIDES,
    )
    sync_timeout: float = other(
        3600,
        "timeout in seconds: of standalone runs that wait for each other, of trainer ranks, of a "
        "weight sync, and of an unresponsive worker over Ray",
        used_by="standalone explorers and trainers, and runs over Ray",
        gt=0,
    )
    group_name: str = other("rollout_weight_sync", "name of the process group", used_by=GROUPS)
    copy_on_disk: bool | None = other(
        None, "keep the copy for lost engines in a file; default: if it is large", used_by=GROUPS
    )
    wait_for_checkpoint: bool = other(
        False, "wait until a checkpoint is written", used_by="sync method checkpoint"
    )
