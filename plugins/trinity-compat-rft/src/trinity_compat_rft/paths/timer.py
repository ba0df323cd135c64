"""``trinity.utils.timer``: note how long a block took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["Timer"]


class Timer:
    """Writes the seconds that a ``with`` block took, also where it raised.

    Args:
        metrics_dict: where they are written.
        key_name: under which name.
    """

    def __init__(self, metrics_dict: MutableMapping[str, float], key_name: str) -> None:
        self.metrics = metrics_dict
        self.key = key_name

    def __enter__(self) -> Timer:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.metrics[self.key] = time.perf_counter() - self._began
