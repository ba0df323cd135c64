"""The routes by which clients look at what they made, change it, fetch or delete it."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from asyncio import to_thread
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import FileResponse, Response

from trinity_tinker.checkpoints import KINDS, expiry
from trinity_tinker.http import body_of, json_object, json_response
from trinity_tinker.refusal import RequestError
from trinity_tinker.session_search import found_sessions
from trinity_tinker.weight_copies import copy_weights

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request as Http

    from trinity_tinker.service import Service

    Answer = Callable[[Http, str], Awaitable[Response]]

__all__ = ["Management"]

_LINK_S = 3600  # how long a link to a file can be used
_CHECKPOINT = "/training_runs/{run}/checkpoints/{kind}/{name}"
_REFUSED = {  # what has a path in the protocol, and is not done here
    "publish": [("POST", _CHECKPOINT + "/publish"), ("DELETE", _CHECKPOINT + "/publish")],
    "projects": [("PUT", "/sessions/{session}/project")],
    "trace_export": [("GET", "/sessions/{session}/trace_export")],
    "audit": [("GET", "/audit")],
    "billing": [
        ("GET", "/billing/usage/events"),
        ("GET", "/billing/usage/checkpoints/current"),
    ],
    "custom losses on the server": [("POST", "/create_custom_loss")],
    "auth/token": [("POST", "/auth/token")],
    "cancel_future": [("POST", "/cancel_future")],
    "retrieve_futures": [("POST", "/retrieve_futures")],
}


class Management:
    """Lists, links and deletions; each client sees what its key made.

    Args:
        service: whose objects they are.
    """

    def __init__(self, service: Service) -> None:
        self._store = service.store
        self._checkpoints = service.checkpoints
        self._forget = service.forget_sampler
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[tuple[str, str, Answer]]:
        """Return method, path and answer of each route that asks for a key."""
        refused = [
            (method, path, _refusing(what))
            for what, paths in _REFUSED.items()
            for method, path in paths
        ]
        return [
            ("GET", "/samplers/{sampler}", self._sampler),
            ("POST", "/join_sampling_session", self._join),
            ("POST", "/weights_info", self._weights_info),
            ("GET", "/training_runs", self._runs),
            ("GET", "/training_runs/{run}", self._run),
            ("GET", "/training_runs/{run}/checkpoints", self._checkpoints_of_run),
            ("GET", "/checkpoints", self._all_checkpoints),
            ("GET", "/sessions", self._sessions),
            ("GET", "/sessions/{session}", self._session),
            ("POST", "/sessions/search", self._search),
            ("POST", "/copy_weights", self._copy),
            ("DELETE", _CHECKPOINT, self._delete),
            ("PUT", _CHECKPOINT + "/ttl", self._set_ttl),
            ("GET", _CHECKPOINT + "/external_weights_urls", self._links),
            *refused,
        ]

    async def file(self, http: Http) -> Response:
        """Answer with a file of a checkpoint, to whoever has the link."""
        token, path = http.path_params["token"], http.path_params["path"]
        until, _, signature = token.partition(".")
        is_signed = hmac.compare_digest(signature.encode(), self._signature(until, path).encode())
        if not is_signed or int(until) < time.time():
            return json_response({"detail": "the link is wrong, or is over."}, status=404)
        file = self._checkpoints.folder / path
        if not file.is_file():
            return json_response({"detail": "the checkpoint was deleted."}, status=404)
        return FileResponse(file)

    async def _sampler(self, http: Http, owner: str) -> Response:
        row = self._store.owned("samplings", http.path_params["sampler"], owner=owner)
        answer = {"sampler_id": row["id"], "base_model": row["base"], "model_path": row["path"]}
        return json_response(answer)

    async def _join(self, http: Http, owner: str) -> Response:
        body = await json_object(http)
        name = str(body.get("sampling_session_id"))
        self._store.owned("samplings", name, owner=owner)
        with self._store.writing():
            self._store.write("UPDATE samplings SET clones = clones + 1 WHERE id = ?", name)
            row = self._store.owned("samplings", name, owner=owner)
        return json_response({"type": "join_sampling_session", "client_counter": row["clones"]})

    async def _weights_info(self, http: Http, owner: str) -> Response:
        body = await json_object(http)
        row = self._store.owned("checkpoints", str(body.get("tinker_path")), owner=owner)
        adapter = json.loads(row["adapter"])
        switches = {name: adapter[name] for name in ("train_unembed", "train_mlp", "train_attn")}
        answer = {"base_model": row["base"], "is_lora": True, "lora_rank": adapter["rank"]}
        return json_response({**answer, **switches})

    async def _runs(self, http: Http, owner: str) -> Response:
        found = self._store.rows(
            "SELECT * FROM models WHERE owner = ? AND base != '' ORDER BY made DESC", owner
        )
        page, cursor = _page(http, found)
        return json_response(
            {
                "training_runs": [self._shown_run(row) for row in page],
                "cursor": cursor,
            }
        )

    async def _run(self, http: Http, owner: str) -> Response:
        run = self._owned_run(http, owner)
        if not run["base"]:
            raise RequestError(404, f"the run {run['id']!r} is not made yet, or could not be made.")
        return json_response(self._shown_run(run))

    async def _checkpoints_of_run(self, http: Http, owner: str) -> Response:
        run = self._owned_run(http, owner)
        found = self._store.rows(
            "SELECT * FROM checkpoints WHERE model = ? ORDER BY made", run["id"]
        )
        return json_response({"checkpoints": [shown_checkpoint(row) for row in found]})

    async def _all_checkpoints(self, http: Http, owner: str) -> Response:
        found = self._store.rows(
            "SELECT * FROM checkpoints WHERE owner = ? ORDER BY made DESC", owner
        )
        page, cursor = _page(http, found)
        return json_response(
            {
                "checkpoints": [shown_checkpoint(row) for row in page],
                "cursor": cursor,
            }
        )

    async def _sessions(self, http: Http, owner: str) -> Response:
        found = self._store.rows(
            "SELECT id FROM sessions WHERE owner = ? ORDER BY made DESC", owner
        )
        return json_response({"sessions": [row["id"] for row in _page(http, found)[0]]})

    async def _session(self, http: Http, owner: str) -> Response:
        session = self._store.owned("sessions", http.path_params["session"], owner=owner)
        body = json.loads(session["body"])
        runs, samplers = (
            [
                row["id"]
                for row in self._store.rows(
                    f"SELECT id FROM {table} WHERE session = ? ORDER BY made",
                    session["id"],
                )
            ]
            for table in ("models", "samplings")
        )
        return json_response(
            {
                "training_run_ids": runs,
                "sampler_ids": samplers,
                "user_metadata": body.get("user_metadata"),
                "display_name": body.get("display_name"),
            }
        )

    async def _search(self, http: Http, owner: str) -> Response:
        raw = await body_of(http) or b"{}"
        return json_response(await to_thread(found_sessions, self._store, raw, owner=owner))

    async def _copy(self, http: Http, owner: str) -> Response:
        raw = await body_of(http)
        path = await to_thread(copy_weights, self._checkpoints, raw, owner=owner)
        return json_response({"tinker_path": path})

    async def _delete(self, http: Http, owner: str) -> Response:
        row = self._owned_checkpoint(http, owner)
        self._forget(self._checkpoints.folder_of(row))
        self._checkpoints.delete(row)
        return Response(status_code=204)

    async def _set_ttl(self, http: Http, owner: str) -> Response:
        row = self._owned_checkpoint(http, owner)
        expires = expiry((await json_object(http)).get("ttl_seconds"))
        self._store.write("UPDATE checkpoints SET expires = ? WHERE path = ?", expires, row["path"])
        return Response(status_code=204)

    async def _links(self, http: Http, owner: str) -> Response:
        row = self._owned_checkpoint(http, owner)
        until = int(time.time()) + _LINK_S
        root = f"{http.url.scheme}://{http.url.netloc}/api/v1/files"
        folder = self._checkpoints.folder_of(row)
        urls = {
            str(path.relative_to(folder)): f"{root}/{self._link(until, path)}"
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return json_response({"urls": urls, "expires": _time(until)})

    def _link(self, until: int, path: Path) -> str:
        name = str(path.relative_to(self._checkpoints.folder))
        quoted = name.replace("%", "%25")
        return f"{until}.{self._signature(str(until), name)}/{quoted}"

    def _signature(self, until: str, path: str) -> str:
        text = f"{until}\0{path}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

    def _owned_run(self, http: Http, owner: str) -> sqlite3.Row:
        return self._store.owned("models", http.path_params["run"], owner=owner)

    def _owned_checkpoint(self, http: Http, owner: str) -> sqlite3.Row:
        parts = http.path_params
        path = f"tinker://{parts['run']}/{parts['kind']}/{parts['name']}"
        return self._store.owned("checkpoints", path, owner=owner)

    def _shown_run(self, row: sqlite3.Row) -> dict[str, Any]:
        newest = {
            kind: self._store.row(
                "SELECT * FROM checkpoints WHERE model = ? AND kind = ? ORDER BY made DESC",
                *(row["id"], kind),
            )
            for kind in ("weights", "sampler_weights")
        }
        last, sampler = (one and shown_checkpoint(one) for one in newest.values())
        return {
            "training_run_id": row["id"],
            "base_model": row["base"],
            "model_owner": row["owner"],
            "is_lora": True,
            "lora_rank": json.loads(row["adapter"])["rank"],
            "last_request_time": _time(row["used"]),
            "last_checkpoint": last,
            "last_sampler_checkpoint": sampler,
            "user_metadata": json.loads(row["metadata"]),
        }


def shown_checkpoint(row: sqlite3.Row) -> dict[str, Any]:
    """Return a checkpoint as clients know one (Any: of each field)."""
    name = str(row["path"]).rpartition("/")[2]
    return {
        "checkpoint_id": f"{row['kind']}/{name}",
        "checkpoint_type": KINDS[row["kind"]],
        "time": _time(row["made"]),
        "tinker_path": row["path"],
        "size_bytes": row["size"],
        "public": False,
        "user_metadata": json.loads(row["metadata"]),
        "expires_at": row["expires"] and _time(row["expires"]),
    }


def _page(http: Http, rows: list[sqlite3.Row]) -> tuple[list[sqlite3.Row], dict[str, int]]:
    """Return the rows that the client asks for, and where they stand."""
    if http.query_params.get("project_id"):
        raise RequestError(422, "project_id: projects are not implemented here.")
    numbers = [http.query_params.get(name, "") for name in ("limit", "offset")]
    if any(number and not (number.isdecimal() and len(number) < 10) for number in numbers):
        raise RequestError(422, f"limit and offset are {numbers}; they are whole numbers.")
    limit, offset = int(numbers[0] or 20), int(numbers[1] or 0)
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return rows[offset : offset + limit], cursor


def _refusing(what: str) -> Answer:
    async def refuse(http: Http, owner: str) -> Response:
        del http, owner
        raise RequestError(422, f"{what}: not implemented here.")

    return refuse


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
