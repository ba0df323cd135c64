"""Runs in memory, as the journal and their last state on the disk have them.

After each step, adapter and AdamW state of a run are on the disk (its state); passes after that are
in the journal, and are made again where a run comes back into memory.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from trinity.errors import DataError

from trinity_tinker.checkpoints import write_whole
from trinity_tinker.datums import read_loss_request
from trinity_tinker.refusal import Refused
from trinity_tinker.scored_rows import backward

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from trinity_tinker.base_model import BaseModel
    from trinity_tinker.datums import LossRequest
    from trinity_tinker.store import Request, Result, Store

__all__ = ["REST_OF_BATCH", "RunStates"]

REST_OF_BATCH = (
    "The rest of the batch is refused, up to and including its optim_step; send the whole batch "
    "again after it."
)

_MOST_BEFORE = 32  # requests of other runs that one lets go first which has to be loaded
_DROP = """
UPDATE requests SET body = NULL,
    summary = json_set(IFNULL(summary, '{}'), '$.gradients_dropped_at', ?)
WHERE scope = ? AND finished IS NOT NULL AND body IS NOT NULL
"""
_DROPPED = """
SELECT MAX(json_extract(summary, '$.gradients_dropped_at')) AS seq FROM requests
WHERE scope = ? AND seq > ? AND seq < ?
"""
_DROP_REST = """
UPDATE requests SET summary = json_set(IFNULL(summary, '{}'), '$.gradients_dropped_at', seq)
WHERE id = ?
"""
_REST = """
SELECT 1 FROM requests WHERE scope = ? AND seq > ? AND finished IS NULL
AND kind IN ('forward_backward', 'optim_step') LIMIT 1
"""
_STEP = """
SELECT 1 FROM requests WHERE scope = ? AND seq >= ? AND seq < ? AND kind = 'optim_step' LIMIT 1
"""


class RunStates:
    """Loads runs before their requests, and lets go of those used longest ago; for one thread.

    Args:
        store: where requests and states are noted.
        bases: the models by their names.
        folder: of the states.
        max_models: runs in memory.
    """

    def __init__(
        self, store: Store, *, bases: Mapping[str, BaseModel], folder: Path, max_models: int
    ) -> None:
        self._store = store
        self._bases = bases
        self._folder = folder
        self._max_models = max_models
        self._loaded: dict[str, BaseModel] = {}  # the last is the one used last
        self._in_batch: set[str] = set()  # those of them with passes since their last step
        self._not_whole: set[str] = set()  # those whose batch lost passes that were told as done
        self._num_before = 0  # requests that went first, since one had to be loaded

    @property
    def loaded(self) -> list[str]:
        """Return the runs in memory."""
        return list(self._loaded)

    def base_named(self, name: str) -> BaseModel:
        """Return a base model.

        Raises:
            Refused: it is not served here.
        """
        if name not in self._bases:
            raise Refused(
                f"the base model {name!r} is not served here; there are {', '.join(self._bases)}."
            )
        return self._bases[name]

    def choose(self, requests: Sequence[Request]) -> Request:
        """Return which of the next requests of runs, given in turn, is done now.

        The first, but for a while: where its run has to be loaded and another has to leave, runs
        with passes since their last step go first. They would make them again once they are back.
        """
        first = requests[0]
        is_costly = len(self._loaded) >= self._max_models and first.kind != "create_model"
        if first.scope not in self._loaded and is_costly and self._num_before < _MOST_BEFORE:
            for request in requests:
                if request.scope in self._in_batch:
                    self._num_before += 1
                    return request
        self._num_before = 0
        return first

    def release(self, model: str) -> None:
        """Take a run out of memory; the next request brings it back."""
        self._in_batch.discard(model)
        self._not_whole.discard(model)
        base = self._loaded.pop(model, None)
        if base is not None:
            base.trainer.end(model)

    def drop_batch(self, model: str, *, before: int) -> bool:
        """Let the passes of a run since its state not be made again; return whether there are any.

        The number of the request before which they are missing is noted, for the rest of their
        batch may come after another start.
        """
        return self._store.write(_DROP, before, model) > 0

    def has_rest(self, request: Request) -> bool:
        """Return whether a client has sent more of the batch of a pass, before it has a result."""
        is_pass = request.kind == "forward_backward"
        return is_pass and self._store.row(_REST, request.scope, request.seq) is not None

    def drop_rest(self, request: Request) -> None:
        """Let the rest of a batch be refused whose first pass has failed."""
        self._store.write(_DROP_REST, request.id)

    def ready(self, request: Request) -> tuple[sqlite3.Row, BaseModel]:
        """Return a run's row and base model; the run is in memory as it was before this request.

        Raises:
            Refused: the run was not made, its base model is not served here, or a step would be
                made with a part of its batch.
        """
        model = self._store.row("SELECT * FROM models WHERE id = ?", request.scope)
        if model is None or not model["base"]:
            raise Refused(f"the model {request.scope!r} was not made: its first request failed.")
        base = self.base_named(model["base"])
        if request.scope in self._loaded:
            self._loaded[request.scope] = self._loaded.pop(request.scope)
        else:
            self._load(request, model, base)
        if request.kind == "optim_step":
            self._refuse_part(request)
        return model, base

    def _load(self, request: Request, model: sqlite3.Row, base: BaseModel) -> None:
        while len(self._loaded) >= self._max_models:
            self.release(next(iter(self._loaded)))
        lora = json.loads(model["adapter"])
        base.trainer.begin(request.scope, base.adapter(lora), seed=lora["seed"])
        self._loaded[request.scope] = base
        try:
            self._restore(model, base, before=request.seq)
        except Exception:
            self.release(request.scope)  # or the next request would find an untrained adapter
            raise

    def backward(
        self, base: BaseModel, request: Request
    ) -> tuple[LossRequest, list[Tensor], float]:
        """Make the pass of a request; return it with log-probabilities ``[N]`` and the loss."""
        return self._pass(base, request, max_length=base.max_length)

    def _pass(
        self, base: BaseModel, request: Request, *, max_length: int | None
    ) -> tuple[LossRequest, list[Tensor], float]:
        raw = self._store.body_of(request.id)
        asked = read_loss_request(raw, vocab=base.vocab, max_length=max_length)
        if not asked.forward_only:
            self._refuse_part(request)
        logprobs, loss = backward(
            base.trainer,
            request.scope,
            asked.rows,
            asked.loss_of_row,
            max_tokens=base.max_tokens,
            forward_only=asked.forward_only,
        )
        if not asked.forward_only:
            self._in_batch.add(request.scope)
        return asked, logprobs, loss

    def save(self, request: Request, model: sqlite3.Row, result: Result) -> None:
        """Write adapter and optimizer; the request has its result, and the old state goes."""
        folder = f"{quote(model['id'], safe='')}/state-{request.seq}"
        trainer = self.base_named(model["base"]).trainer
        write_whole(self._folder / folder, partial(trainer.save, model["id"]))
        with self._store.writing():
            self._store.note_state(model["id"], seq=request.seq, folder=folder)
            self._store.finish(request, result, keeps_body=False)
        self._in_batch.discard(model["id"])
        self._not_whole.discard(model["id"])
        if model["state_folder"] and model["state_folder"] != folder:
            shutil.rmtree(self._folder / model["state_folder"], ignore_errors=True)

    def _restore(self, model: sqlite3.Row, base: BaseModel, *, before: int) -> None:
        name = model["id"]
        if model["state_folder"]:
            state = self._folder / model["state_folder"]
            base.trainer.load(name, state, with_optimizer=True)
        try:
            for passed in self._store.gradients_since(name, seq=model["state_seq"], before=before):
                self._pass(base, passed, max_length=None)  # whatever the server takes by now
        except (Refused, DataError) as error:
            self.drop_batch(name, before=before)  # or no request could be done any more
            raise Refused(
                f"passes of {name} since its last optim_step cannot be made again, so their "
                f"gradients are dropped. {REST_OF_BATCH} The cause: {error}"
            ) from error
        dropped = self._store.row(_DROPPED, name, model["state_seq"], before)
        if dropped is None or dropped["seq"] is None:
            return
        if self._store.row(_STEP, name, dropped["seq"], before) is None:
            self._not_whole.add(name)

    def _refuse_part(self, request: Request) -> None:
        """Hold that the batch of a pass or step lost no passes; its step is the end of it."""
        if request.scope not in self._not_whole:
            return
        if request.kind == "optim_step":
            self._not_whole.discard(request.scope)
        raise Refused(
            f"{request.kind} {request.seq} of {request.scope} was not executed: passes of its "
            f"batch could not be made again, as an earlier error says. The batch is refused up to "
            f"and including its optim_step; send the whole batch again after it."
        )
