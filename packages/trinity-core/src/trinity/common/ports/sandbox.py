"""Where programs run that a model wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path


class Sandbox(Protocol):
    """Runs commands where they can read and write only what they are given.

    ``trinity.common.sandbox``, of the distribution trinity-sandbox, has a base class, and the
    records that are Any here: ``Limits``, ``CommandResult`` and ``Session``.
    """

    @classmethod
    def problem(cls) -> str:
        """Return why this machine cannot run it, in a few words; "": it can."""

    def run(
        self,
        command: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        binds: Sequence[Path] = (),
        limits: Any | None = None,
        stdin: bytes = b"",
    ) -> Any:
        """Run one command in a session of its own; return its exit code and what it printed."""

    def open(
        self,
        *,
        files: Mapping[str, str] | None = None,
        binds: Sequence[Path] = (),
        limits: Any | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[Any]:
        """Open a session: commands over one folder, which is deleted at the end."""
