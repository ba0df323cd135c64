"""A call in a thread of its own, which nobody waits for without a limit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Background"]


class Background:
    """Starts the call at once.

    Args:
        call: what is called.

    Attributes:
        value: what it returned, None until then.
        error: what it raised, None if nothing.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, name="conformance", daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> bool:
        """Return whether it has ended, after so many seconds at most."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001 -- told by ``error``
            self.error = error
