"""Find the sessions of a client by name, metadata and state, a page at a time."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trinity_tinker.fields import parsed, whole
from trinity_tinker.refusal import Refused

if TYPE_CHECKING:
    import sqlite3

    from trinity_tinker.store import Store

__all__ = ["found_sessions"]

_ALIVE_S = 60.0  # since the last heartbeat; clients send one every 10 s
_MOST = 200
_SESSIONS = """
SELECT sessions.*, COUNT(path) AS num_checkpoints, SUM(size) AS num_bytes
FROM sessions LEFT JOIN models ON models.session = sessions.id
    LEFT JOIN checkpoints ON checkpoints.model = models.id
WHERE sessions.owner = ? GROUP BY sessions.id ORDER BY sessions.made DESC, sessions.id DESC
"""
_FIELDS: dict[str, Any] = {
    "session_id": None,
    "project_ids": None,
    "user_metadata": {},
    "display_name": None,
    "owner": {"type": "own"},
    "statuses": None,
    "limit": 50,
    "cursor": None,
}


def found_sessions(store: Store, raw: bytes, *, owner: str) -> dict[str, Any]:
    """Return the answer to a search, newest sessions first (Any: values of JSON).

    Raises:
        Refused: it asks for projects, for others' sessions, or for what is no search.
    """
    body = parsed(raw, **_FIELDS)
    if body["project_ids"]:
        raise Refused("project_ids: projects are not implemented here.")
    if body["owner"] != {"type": "own"}:
        raise Refused(f"owner is {body['owner']!r}; a key finds its own sessions.")
    for name, kind in (("user_metadata", dict), ("cursor", dict), ("statuses", list)):
        if body[name] is not None and not isinstance(body[name], kind):
            raise Refused(f"{name} is {body[name]!r:.80}, which is no {kind.__name__}.")
    limit = whole(body, "limit", least=1, most=_MOST)
    rows = _after(store.rows(_SESSIONS, owner), body["cursor"])
    wanted = [row for row in rows if _is_wanted(row, body)]
    shown, last = wanted[:limit], None
    if len(wanted) > limit:
        last = {"last_created_at": _time(shown[-1]["made"]), "last_session_id": shown[-1]["id"]}
    return {"sessions": [_summary(row) for row in shown], "next_cursor": last}


def _after(rows: list[sqlite3.Row], cursor: dict[str, Any] | None) -> list[sqlite3.Row]:
    if cursor is None:
        return rows
    ids = [row["id"] for row in rows]
    last = cursor.get("last_session_id")
    if last not in ids:
        raise Refused(f"the cursor is of the session {last!r}, which is not there.")
    return rows[ids.index(last) + 1 :]


def _is_wanted(row: sqlite3.Row, body: dict[str, Any]) -> bool:
    own = json.loads(row["body"])
    metadata = own.get("user_metadata") or {}
    if any(metadata.get(name) != value for name, value in body["user_metadata"].items()):
        return False
    if body["statuses"] is not None and not any(_has(row, one) for one in body["statuses"]):
        return False
    given, name = str(own.get("display_name") or "").lower(), body["display_name"]
    if body["session_id"] is None and name is None:
        return True
    is_named = name is not None and all(word in given for word in str(name).lower().split())
    return is_named or row["id"] == body["session_id"]


def _has(row: sqlite3.Row, status: Any) -> bool:  # Any: of a client
    found = _status(row)
    if found is None or not isinstance(status, dict) or status.get("type") != found["type"]:
        return False
    reasons = status.get("reasons")
    given = reasons if isinstance(reasons, list) else []
    return reasons is None or found.get("reason", {}).get("type") in given


def _status(row: sqlite3.Row) -> dict[str, Any] | None:
    if row["finished"] is not None:
        return {"type": "client_finished", "reason": {"type": row["finished"]}}
    return {"type": "active"} if time.time() - row["seen"] < _ALIVE_S else None


def _summary(row: sqlite3.Row) -> dict[str, Any]:
    own = json.loads(row["body"])
    return {
        "session_id": row["id"],
        "created_at": _time(row["made"]),
        "owner": row["owner"],
        "project_id": "local",
        "status": _status(row),
        "checkpoints_count": row["num_checkpoints"],
        "checkpoint_storage_bytes": row["num_bytes"] or 0,
        "display_name": own.get("display_name"),
        "user_metadata": own.get("user_metadata"),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
