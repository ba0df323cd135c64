"""Say what ran, what was planned, what was there and what helps when a GPU has no memory left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["out_of_memory"]

_WANTED = re.compile(r"Tried to allocate ([0-9.]+ \w+)")
_TOTAL = re.compile(r"total capacity of ([0-9.]+ \w+)(?: of which ([0-9.]+ \w+) is free)?")


def out_of_memory(
    error: Exception, *, phase: str, remedies: Sequence[str], plan: str = ""
) -> ModelError:
    """Return the error for a user whose GPU is full.

    Args:
        error: of torch, which names what was requested and the size of the GPU.
        phase: what ran: forward pass, backward pass, optimizer, weight sync, rollout.
        remedies: keys to change, each with its new value; the cheapest first.
        plan: what was computed beforehand, as a sentence; empty: nothing was.
    """
    import torch

    said = str(error)
    wanted, total = _WANTED.search(said), _TOTAL.search(said)
    held = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    there = f"this process held {_mib(held)}"
    if total:
        free = f", {total[2]} were free" if total[2] else ""
        there += f" of the GPU's {total[1]}{free}"
    return ModelError(
        f"the GPU ran out of memory in the {phase}: {wanted[1] if wanted else 'memory'} more was "
        f"requested, and {there}.{plan and f' {plan}'} What helps, the cheapest first: "
        f"{'; '.join(remedies)}. Change one of them, then run the same command: it goes on from "
        "what is saved."
    )


def _mib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
