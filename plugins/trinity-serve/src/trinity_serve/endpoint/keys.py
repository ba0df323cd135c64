"""Which key belongs to which run."""

from __future__ import annotations

import logging
import secrets
import string
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity_serve.endpoint.fields import Refusal, run_over

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity_serve.endpoint.session import Session

logger = logging.getLogger("trinity.endpoint")

_LETTERS = string.ascii_letters + string.digits
_NUM_LETTERS = 32
_NUM_OLD_KEYS = 10_000  # of runs that are over: their agents are told so


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What a key stands for."""

    session: Session
    agent: str
    record: bool  # whether the exchanges become experiences
    force_sampling: bool  # whether the configuration's temperature, top_p and top_k win


class KeyRing:
    """The keys of the runs of this process; thread-safe."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._old: deque[str] = deque(maxlen=_NUM_OLD_KEYS)
        self._num_late = 0
        self._lock = threading.Lock()

    def new(self, entry: Entry) -> str:
        """Return a new key that stands for the entry."""
        key = "trk-" + "".join(secrets.choice(_LETTERS) for _ in range(_NUM_LETTERS))
        with self._lock:
            self._entries[key] = entry
        return key

    def find(self, key: str) -> Entry:
        """Return what the key stands for.

        Raises:
            Refusal: 401, nobody has it; 409, its run is over.
        """
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        with self._lock:
            if key in self._old:
                self._note_late()
                raise run_over()
        raise Refusal(
            401,
            "the key is missing or unknown; send the one in OPENAI_API_KEY as 'Authorization: "
            "Bearer KEY', as 'x-api-key: KEY', or in the path as /r/KEY/v1/.",
            code="invalid_api_key",
        )

    def forget(self, keys: Iterable[str]) -> None:
        """Refuse these keys from now on: their run is over."""
        with self._lock:
            for key in keys:
                if self._entries.pop(key, None) is not None:
                    self._old.append(key)

    @property
    def num_late(self) -> int:
        """Return how many calls came after the end of their run."""
        return self._num_late

    def _note_late(self) -> None:
        self._num_late += 1
        if self._num_late == 1:
            logger.warning(
                "refused a model call of an agent whose rollout had ended, and will refuse further "
                "ones. Let the agent end before its function or command returns."
            )
