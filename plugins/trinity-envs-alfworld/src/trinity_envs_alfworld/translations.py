"""Let processes share what translating a game takes: nine tenths of loading a large one.

    game, unknown --> one process loads and translates it --> its text is kept here, in the parent
    game, known ----> another process loads it with that text   (8 runs of a group: 1 translation)

The text travels through the pipes between a process and its own children and is in no file. It
names the PDDL that it was made of; for any other it is not used.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.workflows.env_pool import EnvLease, EnvPool

__all__ = ["MAX_KEPT_BYTES", "GameFile", "SharedTranslations", "Translation"]

MAX_KEPT_BYTES = 64 << 20  # a room of 28 receptacles takes 90 kB, one of 11 takes 9
LONGEST_WAIT_S = 60.0  # for a translation of another, who may hang; it takes seconds


@dataclass(frozen=True, slots=True)
class Translation:
    """What the translator wrote for a game, compressed."""

    digest: bytes  # of domain and problem
    packed: bytes

    @classmethod
    def of(cls, domain: str, problem: str, *, text: str) -> Translation:
        """Return the translation of a problem, packed."""
        return cls(_digest(domain, problem), zlib.compress(text.encode(), level=1))

    def text_for(self, domain: str, problem: str) -> str | None:
        """Return the text; None where it is that of another problem."""
        if self.digest != _digest(domain, problem):
            return None
        return zlib.decompress(self.packed).decode()


@dataclass(frozen=True, slots=True)
class GameFile:
    """The file of a game in one state; two are equal where these are, translated or not."""

    path: str
    changed_ns: int
    translation: Translation | None = field(default=None, compare=False, repr=False)


class SharedTranslations:
    """Leases processes with a game loaded; the first one translates it, the others are told.

    Args:
        max_bytes: that are kept; the game that was not asked for longest goes first.
    """

    def __init__(self, *, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # guards all below
        self._kept: OrderedDict[GameFile, Translation | None] = OrderedDict()
        self._num_bytes = 0
        self._coming: dict[GameFile, threading.Event] = {}

    def lease(self, pool: EnvPool, game: GameFile) -> EnvLease:
        """Return a process with the game loaded; waits for another who translates it.

        Raises:
            PluginError, EnvError: as ``EnvPool.lease``; what one meets does not stop the others.
        """
        with self._lock:
            is_known = game in self._kept
            coming = self._coming.get(game)
            is_first = not is_known and coming is None
            if is_first:
                self._coming[game] = threading.Event()
        if is_first:
            return self._first_lease(pool, game)
        if coming is not None:
            coming.wait(LONGEST_WAIT_S)
        return pool.lease(replace(game, translation=self._known(game)))

    def _first_lease(self, pool: EnvPool, game: GameFile) -> EnvLease:
        try:
            lease = pool.lease(game)
            try:
                self._keep(game, lease.call("translation"))
            except BaseException:
                lease.close()
                raise
            return lease
        finally:
            with self._lock:
                self._coming.pop(game).set()

    def _known(self, game: GameFile) -> Translation | None:
        with self._lock:
            if game not in self._kept:
                return None
            self._kept.move_to_end(game)
            return self._kept[game]

    def _keep(self, game: GameFile, translation: Translation | None) -> None:
        with self._lock:
            self._kept[game] = translation
            self._num_bytes += _size(translation)
            while self._num_bytes > self._max_bytes:
                self._num_bytes -= _size(self._kept.popitem(last=False)[1])


def _size(translation: Translation | None) -> int:
    return len(translation.packed) if translation is not None else 0


def _digest(domain: str, problem: str) -> bytes:
    return hashlib.sha256(f"{len(domain)} {domain}{problem}".encode()).digest()
