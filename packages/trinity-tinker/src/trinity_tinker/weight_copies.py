"""Copy a checkpoint to a run of another session."""

from __future__ import annotations

import json
import shutil
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity_tinker.fields import parsed, whole
from trinity_tinker.refusal import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from trinity_tinker.checkpoints import Checkpoints

__all__ = ["copy_weights"]

_one_at_a_time = threading.Lock()  # a client repeats a request whose answer takes long


def copy_weights(checkpoints: Checkpoints, raw: bytes, *, owner: str) -> str:
    """Return the path of a copy; the same request gives the same copy, made once.

    The run that owns it takes no requests: ``load_weights`` makes one of the copy.

    Raises:
        Refused: it names a project or a token, the source is not there, or the run is.
        RequestError: 404, there is no such session.
    """
    body = parsed(
        raw,
        source_path=str,
        **dict.fromkeys(("session_id", "model_seq_id", "ttl_seconds")),
        **dict.fromkeys(("destination_project_id", "weights_access_token")),
    )
    for name in ("destination_project_id", "weights_access_token"):
        if body[name] is not None:
            raise Refused(f"{name} is not known here; give session_id and model_seq_id.")
    with _one_at_a_time:
        return _copied(checkpoints, body, owner=owner)


def _copied(checkpoints: Checkpoints, body: dict[str, Any], *, owner: str) -> str:
    store, number = checkpoints.store, whole(body, "model_seq_id", least=0)
    session = store.owned("sessions", str(body["session_id"]), owner=owner)["id"]
    source = checkpoints.find(body["source_path"], owner=owner)
    name = str(source["path"]).rpartition("/")[2]
    model = {"id": f"{session}:train:{number}", "owner": owner}
    model |= {"base": source["base"], "adapter": source["adapter"]}
    origin = json.dumps({"copied_from": source["path"]})
    path = f"tinker://{model['id']}/{source['kind']}/{name}"
    known = store.row("SELECT metadata FROM models WHERE id = ?", model["id"])
    if known is not None and known["metadata"] != origin:
        raise Refused(f"{model['id']} is a run already; choose another model_seq_id.")
    is_there = "SELECT 1 FROM checkpoints WHERE path = ? AND (expires IS NULL OR expires > ?)"
    if store.row(is_there, path, time.time()) is not None:
        return path

    def note(_path: str) -> None:
        now = time.time()
        store.write(
            "INSERT OR IGNORE INTO models "
            "(id, owner, session, made, used, base, adapter, metadata) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(model["id"], owner, session, now, now, model["base"], model["adapter"], origin),
        )

    checkpoints.save(
        model,
        kind=source["kind"],
        name=name,
        write=partial(_copy, checkpoints, str(source["path"]), owner),
        note=note,
        ttl_s=body["ttl_seconds"],
        metadata=json.loads(source["metadata"]),
    )
    return path


def _copy(checkpoints: Checkpoints, path: str, owner: str, target: Path) -> None:
    """Copy the files of a checkpoint, again if others take their place meanwhile.

    Raises:
        OSError: they cannot be read.
        Refused: the checkpoint is gone.
    """
    while True:
        source = checkpoints.find(path, owner=owner)
        failure: OSError | None = None
        shutil.rmtree(target)
        try:
            shutil.copytree(checkpoints.folder_of(source), target)
        except OSError as error:
            failure = error
        with checkpoints.lock:
            is_same = checkpoints.find(path, owner=owner)["made"] == source["made"]
        if is_same and failure is not None:
            raise failure
        if is_same:
            return
