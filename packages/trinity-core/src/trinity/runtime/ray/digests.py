"""Compare the plugin sets of the rooms with the driver's before the first task."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from trinity.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.extend import PluginManager
    from trinity.runtime.ray.room import RoomFacts


def check_plugin_sets(facts: Sequence[RoomFacts], *, manager: PluginManager) -> None:
    """Do nothing where every room found the plugins that this process has.

    Raises:
        PluginError: one found others; node, room and what differs are named.
    """
    own = manager.digest()
    others = [room for room in facts if room.digest != own]
    if not others:
        return
    room, mine = others[0], plugin_lines(manager)
    names = ", ".join(other.name for other in others)
    only_there = ", ".join(sorted(set(room.plugins) - set(mine))) or "nothing that is not here"
    only_here = ", ".join(sorted(set(mine) - set(room.plugins))) or "nothing that is not there"
    remedy = (
        "Install the same versions on both (python -m pip install there), or leave a plugin out "
        "with plugins.disabled."
    )
    if room.host == platform.node():
        remedy = "If files were changed while the run started, start it again."
    raise PluginError(
        f"the plugins on node {room.host} (room {names}) are not those of the driver on "
        f"{platform.node()}: there {only_there}; here {only_here}. {remedy}"
    )


def plugin_lines(manager: PluginManager) -> tuple[str, ...]:
    """Return one line for each plugin in use: distribution, version, hash of its source."""
    return tuple(
        sorted(
            f"{row['distribution'] or 'plugin folder module ' + row['plugin']} "
            f"{(row['version'] or '') + ' '}(source {row['source_hash']})".replace("  ", " ")
            for row in manager.describe()
        )
    )
