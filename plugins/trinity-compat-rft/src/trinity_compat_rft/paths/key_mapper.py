"""``trinity.algorithm.key_mapper``: verl's names of a batch's fields and Trinity's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALL_MAPPERS", "KeyMapper"]


class KeyMapper:
    """Translates names of fields; one that it does not know is the same on both sides.

    Args:
        to_trinity_map: the other side's name -> Trinity's.
    """

    def __init__(self, to_trinity_map: Mapping[str, str]) -> None:
        self.to_trinity_map = dict(to_trinity_map)
        self.from_trinity_map = {ours: other for other, ours in to_trinity_map.items()}

    def to_trinity(self, key: str) -> str:
        """Return Trinity's name."""
        return self.to_trinity_map.get(key, key)

    def from_trinity(self, key: str) -> str:
        """Return the other side's name."""
        return self.from_trinity_map.get(key, key)


_VERL = {
    "log_prob": "logprob",
    "old_log_probs": "old_logprob",
    "ref_log_prob": "ref_logprob",
    "response_mask": "action_mask",
}
ALL_MAPPERS = {"verl": KeyMapper(_VERL), "tinker": KeyMapper({})}
