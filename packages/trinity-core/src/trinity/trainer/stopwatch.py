"""Measure how a step's time is split."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stopwatch:
    """Adds up seconds by name, GPU work included."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of the block to ``time/<name>_s``."""
        start = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        key = f"time/{name}_s"
        self._seconds[key] = self._seconds.get(key, 0.0) + time.perf_counter() - start

    @property
    def metrics(self) -> dict[str, float]:
        """Return the seconds of each name."""
        return dict(self._seconds)
