"""Whether exploring and training take turns, or happen at the same time.

Turns     explore 2 | train 1 | sync | explore 3 | train 2 | sync
AtOnce    explore 2           | sync | explore 3           | sync
          train 1                      train 2

With style ``fixed`` both give the same numbers: what is trained beside an explore step is what the
next sync waits for anyway, and the engines keep their weights until the step has ended.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Protocol

from trinity.extend.kinds import KINDS
from trinity.runtime.lead import lead_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.config import Config
    from trinity.explorer.explorer import ExploreResult
    from trinity.extend import PluginManager

__all__ = ["IN_ORDER", "AtOnce", "Sides", "Turns", "is_in_order", "may_overlap", "runs_ahead"]

LOOK_S = 1.0  # so often a wait comes back to Python, where a second Ctrl-C is heard
IN_ORDER = "in_order"  # in provides


class Sides(Protocol):
    """Who works while the explorer explores."""

    @property
    def overlap(self) -> bool:
        """Return whether the trainer does."""

    def explore(
        self, explore: Callable[[], ExploreResult], *, beside: Callable[[Callable[[], bool]], None]
    ) -> tuple[ExploreResult, float]:
        """Return what an explore step gave, and the seconds of ``beside`` meanwhile.

        Args:
            explore: makes the step.
            beside: may be called at the same time with a function that tells whether the step has
                ended; it does nothing that the step could notice.
        """


class Turns:
    """The trainer waits until the step has ended."""

    overlap = False

    def explore(
        self, explore: Callable[[], ExploreResult], *, beside: Callable[[Callable[[], bool]], None]
    ) -> tuple[ExploreResult, float]:
        """Return what the step gave; nothing else happens."""
        return explore(), 0.0


class AtOnce:
    """The trainer works in this thread, and another one explores."""

    overlap = True

    def explore(
        self, explore: Callable[[], ExploreResult], *, beside: Callable[[Callable[[], bool]], None]
    ) -> tuple[ExploreResult, float]:
        """Return what the step gave, and how long the trainer worked on its side.

        Where ``beside`` fails, the step is left alone: once closed, it writes nothing.
        """
        ended: Future[ExploreResult] = Future()
        threading.Thread(
            target=_settle, args=(ended, explore), name="trinity-explore", daemon=True
        ).start()
        began = time.perf_counter()
        beside(ended.done)
        seconds = time.perf_counter() - began
        while not wait([ended], timeout=LOOK_S).done:
            pass
        return ended.result(0), seconds


def _settle(ended: Future[ExploreResult], explore: Callable[[], ExploreResult]) -> None:
    try:
        result = explore()
    except BaseException as error:  # noqa: BLE001 -- raised where the step is waited for
        ended.set_exception(error)
    else:
        ended.set_result(result)


def runs_ahead(config: Config) -> bool:
    """Return whether explore steps may have older weights than what is trained beside them."""
    sync = config.synchronizer
    return sync.sync_style == "fixed" and (sync.sync_offset > 0 or sync.sync_interval > 1)


def may_overlap(config: Config, manager: PluginManager) -> bool:
    """Return whether the trainer may work beside the explorer, a step at a time.

    The explorer must run ahead, and what is read must not depend on what is written meanwhile. With
    style ``fixed`` that changes no number; the others promise the order alone: ``runtime/lead.py``.
    """
    strategy = manager.find("sample_strategy", config.algorithm.sample_strategy)
    return (
        config.mode == "both"
        and (runs_ahead(config) or lead_of(config) is not None)
        and IN_ORDER in KINDS["sample_strategy"].declared_by(strategy)
        and is_in_order(config, manager)
    )


def is_in_order(config: Config, manager: PluginManager) -> bool:
    """Return whether the buffer gives out, and shows, what it holds as it was written."""
    buffer = config.buffer.trainer_input.experience_buffer
    storage = manager.find("storage", buffer.storage_type)
    return not buffer.replay_buffer.enable and IN_ORDER in KINDS["storage"].declared_by(storage)
