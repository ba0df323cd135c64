"""``synchronizer``: when and how new weights reach the engines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.base import GROUPS, SIDES, Lowercase, StrictModel, core, machine, other

__all__ = ["SynchronizerConfig"]

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
        "how weights travel: nccl (online), checkpoint (offline), gloo, ipc, memory, or a plugin's",
    )
    sync_style: Annotated[
        Literal["fixed", "explorer_driven", "trainer_driven", "fully_async"],
        BeforeValidator(_style),
    ] = core(
        "fixed",
        "who decides when: both sides at fixed steps, or one of them; fully_async: groups begin "
        "one by one, and are trained while others are on their way",
    )
    sync_interval: int = core(1, "steps between two synchronisations", ge=1)
    explorer_sync_interval: int | None = core(
        None,
        "steps of the explorer between two, with explorer_driven; default: sync_interval",
        ge=1,
    )
    trainer_sync_interval: int | None = core(
        None,
        "steps of the trainer between two, with trainer_driven; default: sync_interval",
        ge=1,
    )
    in_flight: Annotated[Literal["finish", "abort", "keep"], Lowercase] = core(
        "finish",
        "what becomes of replies that are under way when weights come: they end first, begin "
        "anew, or go on with the new weights",
    )
    sync_offset: int = core(0, "steps that the explorer runs ahead, with fixed", ge=0)
    standalone: bool | None = other(
        None,
        "whether explorer and trainer are separate runs that meet in the SQL buffer; false: mode "
        "explore only fills it, and mode train trains once on what is there; default: true",
        used_by=SIDES,
    )
    sync_timeout: float = other(
        3600,
        "seconds that one side waits for the other, one rank of the trainer for another, each "
        "process for the others while weights are sent, and a run over Ray for one that is silent",
        used_by="standalone explorers and trainers, and runs over Ray",
        gt=0,
    )
    group_name: str = other("rollout_weight_sync", "name of the process group", used_by=GROUPS)
    wait_for_checkpoint: bool = other(
        False, "wait until a checkpoint is written", used_by="sync method checkpoint"
    )
