"""Sessions of clients: begun, seen and finished."""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING

from trinity_tinker.fields import parsed
from trinity_tinker.http import parsed_object
from trinity_tinker.refusal import RequestError

if TYPE_CHECKING:
    from trinity_tinker.store import Store

__all__ = ["Sessions"]


class Sessions:
    """What clients tell of themselves, noted.

    Args:
        store: of sessions.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, raw: bytes, *, owner: str, call: str) -> str:
        """Return the id of a new session, or of the one that the same call made."""
        body = parsed(
            raw, tags=[], user_metadata=None, sdk_version="", project_id=None, display_name=None
        )
        if body["project_id"] is not None:
            raise RequestError(422, "project_id: projects are not implemented here.")
        with self._store.writing():
            known = self._store.row(
                "SELECT id FROM sessions WHERE owner = ? AND call = ?", owner, call or None
            )
            if known is not None:
                return str(known["id"])
            name, now = secrets.token_hex(8), time.time()
            self._store.write(
                "INSERT INTO sessions (id, owner, call, body, made, seen) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                *(name, owner, call or None, json.dumps(body), now, now),
            )
        return name

    def note_seen(self, session: str, *, owner: str) -> None:
        """Note that the client of a session is there.

        Raises:
            RequestError: 404, there is no such session; 410, it was finished.
        """
        row = self._store.owned("sessions", session, owner=owner)
        if row["finished"] is not None:
            raise RequestError(410, f"the session {session!r} is finished.")
        self._store.write("UPDATE sessions SET seen = ? WHERE id = ?", time.time(), session)

    def note_finished(self, raw: bytes, *, session: str, owner: str) -> None:
        """Note that a client has closed its session, and how."""
        self._store.owned("sessions", session, owner=owner)
        reason = parsed_object(raw or b"{}").get("reason")
        status = str(reason.get("type")) if isinstance(reason, dict) else "success"
        self._store.write("UPDATE sessions SET finished = ? WHERE id = ?", status, session)
