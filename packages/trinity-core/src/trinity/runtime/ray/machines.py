"""Refuse rooms on several machines where weights go from one to another only on the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.runtime.assembly import needs_one_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.ray.room import RoomFacts

_SENDERS = ("trainer", "trainer-0")


def check_machines(config: Config, manager: PluginManager, *, facts: Sequence[RoomFacts]) -> None:
    """Compare where the trainer's process and the engines' are.

    Args:
        config: of the stage.
        manager: the plugins.
        facts: of all rooms.

    Raises:
        ConfigError: an engine is elsewhere, and the sync method reaches it nowhere else.
    """
    sender = next((room for room in facts if room.name in _SENDERS), None)
    if sender is None or not needs_one_machine(config, manager):
        return
    engines = [room for room in facts if room.name.startswith("engine-")]
    elsewhere = [one for one in engines if one.machine != sender.machine]
    method = f"synchronizer.sync_method {config.synchronizer.sync_method} shares memory"
    others = "Set memory, gloo or nccl"
    if not sender.machine:
        raise ConfigError(
            f"{method}, and {sender.host}, where {sender.name} is, has none that nobody can change "
            f"(Linux has it). {others}."
        )
    if elsewhere:
        first = elsewhere[0]
        where = "sees other processes there (another container)"
        if first.host != sender.host:
            where = f"is on {first.host}"
        more = f"; {len(elsewhere)} engines are such" if len(elsewhere) > 1 else ""
        raise ConfigError(
            f"{method}: {sender.name} is on {sender.host}, and {first.name} {where}{more}. "
            f"{others}, or let all of them have room on one machine."
        )
