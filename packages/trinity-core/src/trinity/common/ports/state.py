"""A state that a checkpoint holds."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Stateful"]


class Stateful(Protocol):
    """Has a state that a checkpoint holds."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as json can hold it (Any: each part's own)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
