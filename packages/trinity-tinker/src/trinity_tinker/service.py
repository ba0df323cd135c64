"""What stands behind the routes: requests are noted, done, and waited for."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity_tinker.expiry import Expiry
from trinity_tinker.fields import parsed
from trinity_tinker.http import parsed_object
from trinity_tinker.kills import Kills
from trinity_tinker.refusal import RequestError
from trinity_tinker.run_scheduler import RunScheduler
from trinity_tinker.sample_request import MAX_SAMPLES, SAMPLE_FIELDS
from trinity_tinker.sessions import Sessions
from trinity_tinker.store import Request, Result
from trinity_tinker.training import refusal_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trinity_tinker.base_model import BaseModel
    from trinity_tinker.expiry import ServiceTimes
    from trinity_tinker.sampling import Sampling
    from trinity_tinker.store import Store
    from trinity_tinker.training import Training

__all__ = ["Service"]

logger = logging.getLogger("trinity.tinker")

_NUMBERS = range(2**31)  # of requests, runs and samplers
_SAMPLE_NUMBERS = range(2**63)  # a copy of a sampling client counts from a multiple of 10**9


class Service:
    """Takes requests and answers polls; for the event loop that it is started in.

    Args:
        store: of sessions, requests and results.
        bases: the models by their names.
        training: does requests of runs, in a thread of its own.
        sampling: does requests for samples.
        times: how long it waits for what.
    """

    def __init__(
        self,
        store: Store,
        *,
        bases: Mapping[str, BaseModel],
        training: Training,
        sampling: Sampling,
        times: ServiceTimes,
    ) -> None:
        self.store = store
        self.bases = bases
        self.checkpoints = sampling.checkpoints
        self.forget_sampler = sampling.forget
        self.sessions = Sessions(store)
        self._training = training
        self._sampling = sampling
        self._times = times
        self._events: dict[str, asyncio.Event] = {}  # of what has no result
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiry = Expiry(store, training=training, sampling=sampling, times=times)
        self._kills = Kills(store)
        self._failure = ""  # why results can no longer be noted
        self._is_closing = False  # what comes now is noted alone
        self._loop = asyncio.get_running_loop()
        self._scheduler = RunScheduler(
            self._train,
            give_up=self._give_up,
            next_seq=store.next_seq,
            gap_s=times.gap_s,
            choose=training.states.choose,
        )
        for request, why in self._kills.given_up():
            logger.error("%s %d of %s: %s", request.kind, request.seq, request.scope, why)
            if request.kind == "sample":
                store.finish(request, refusal_result(why, category="server"), keeps_body=False)
            else:
                training.give_up(request, why)
        for request in store.unfinished():
            self._begin(request)

    async def close(self) -> None:
        """End after what is being done; the rest waits in the store.

        Requests and polls are still answered meanwhile, which can take as long as a pass does.
        """
        self._is_closing = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._note_end(executing=self._scheduler.stop())  # a kill may come before it is done
        await asyncio.to_thread(self._scheduler.close)
        await asyncio.to_thread(self._sampling.close)
        self._note_end()
        self.store.close()

    def create_model(self, raw: bytes, *, owner: str, kind: str) -> str:
        """Note the first request of a run, ``create_model`` or ``load_weights``; return its id."""
        body = parsed_object(raw)
        session, number = body.get("session_id"), body.get("model_seq_id")
        if not isinstance(session, str) or not _is_number(number):
            raise RequestError(422, "a run needs session_id and model_seq_id.")
        self.store.owned("sessions", session, owner=owner)
        model, now = f"{session}:train:{number}", time.time()
        with self.store.writing():
            self.store.write(
                "INSERT OR IGNORE INTO models (id, owner, session, made, used) "
                "VALUES (?, ?, ?, ?, ?)",
                *(model, owner, session, now, now),
            )
            return self._add(raw, owner=owner, scope=model, seq=0, kind=kind)

    def add_to_model(self, raw: bytes, *, owner: str, model: str, seq: int, kind: str) -> str:
        """Note a further request of a run; return its id."""
        if not _is_number(seq) or seq == 0:
            raise RequestError(422, f"seq_id is {seq!r}; the requests of a run count from 1.")
        self.store.owned("models", model, owner=owner)
        self.store.write("UPDATE models SET used = ? WHERE id = ?", time.time(), model)
        return self._add(raw, owner=owner, scope=model, seq=seq, kind=kind)

    def create_sampling(self, raw: bytes, *, owner: str) -> str:
        """Return the id of a sampling session."""
        body = parsed(
            raw, session_id=str, sampling_session_seq_id=int, base_model=None, model_path=None
        )
        self.store.owned("sessions", body["session_id"], owner=owner)
        if not _is_number(body["sampling_session_seq_id"]):
            raise RequestError(422, "sampling_session_seq_id is no number of a sampling session.")
        base, path = body["base_model"], body["model_path"]
        if path is not None and not isinstance(path, str):
            raise RequestError(422, f"model_path is {path!r}, which is no path of a checkpoint.")
        if path is not None:
            base = self.store.owned("checkpoints", path, owner=owner)["base"]
        if base not in self.bases:
            known = ", ".join(self.bases)
            raise RequestError(422, f"the base model {base!r} is not served here; {known} is.")
        return self.store.add_sampling(
            owner=owner,
            session=body["session_id"],
            seq=body["sampling_session_seq_id"],
            base=base,
            path=path,
        )

    def add_sample(self, raw: bytes, *, owner: str) -> tuple[str, int]:
        """Note a request for samples; return its id, and how many samples it asks for."""
        body = parsed(raw, **SAMPLE_FIELDS)
        session, seq = body["sampling_session_id"], body["seq_id"]
        if session is None:
            session, seq = f"{owner}:{secrets.token_hex(8)}", 0
        elif not isinstance(session, str):
            raise RequestError(422, f"sampling_session_id is {session!r}, which is no text.")
        else:
            self.store.owned("samplings", session, owner=owner)
        count = body["num_samples"]
        is_numbered = _is_number(seq, of=_SAMPLE_NUMBERS)
        if not is_numbered or not isinstance(count, int) or count > MAX_SAMPLES:
            raise RequestError(
                422, f"asample needs seq_id, and num_samples is a number up to {MAX_SAMPLES}."
            )
        return self._add(raw, owner=owner, scope=session, seq=seq, kind="sample"), count

    def waits_for(self, name: str) -> str:
        """Return why a request is not being done yet, if its client can help it; "": it cannot."""
        row = self.store.row("SELECT scope, seq FROM requests WHERE id = ?", name)
        missing = None if row is None else self._scheduler.missing(row["scope"])
        if row is None or missing is None or missing >= row["seq"]:
            return ""
        return f"request {row['seq']} of {row['scope']} waits for request {missing}, still missing"

    async def result(self, name: str, *, owner: str) -> Result | None:
        """Return how a request ended; None: it has not, after a while.

        Raises:
            RequestError: 404, there is no such request; 410, its result was dropped.
        """
        row = self.store.owned("requests", name, owner=owner)
        event = self._events.get(name)
        if row["finished"] is None and event is not None:
            try:
                await asyncio.wait_for(event.wait(), self._times.holds_s)
            except TimeoutError:
                return None
            row = self.store.owned("requests", name, owner=owner)
        if row["finished"] is None and self._failure:
            return refusal_result(self._failure, category="server")
        if row["result"] is None:
            kept = f"nobody fetched it within {self._times.keeps_unfetched_s:g} s"
            why = kept if row["retrieved"] is None else "it was retrieved"
            raise RequestError(410, f"the result of {name} was dropped: {why}.")
        self.store.note_retrieved(name)
        self._expire()
        return Result(form=row["form"], body=row["result"])

    def _add(self, raw: bytes, *, owner: str, scope: str, seq: int, kind: str) -> str:
        self._expire()  # first: what is noted has to begin
        name, is_new = self.store.add_request(
            owner=owner, scope=scope, seq=seq, kind=kind, body=raw
        )
        if is_new:
            self._begin(Request(id=name, owner=owner, scope=scope, seq=seq, kind=kind))
        return name

    def _begin(self, request: Request) -> None:
        self._events[request.id] = asyncio.Event()
        if request.kind != "sample":
            self._scheduler.add(request)
            return
        if self._is_closing:
            return
        task = self._loop.create_task(self._sample(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sample(self, request: Request) -> None:
        with self._noting(request):
            await self._sampling.run(request)
        self._note_done(request.id)

    def _note_end(self, *, executing: Request | None = None) -> None:
        try:
            self._kills.note_end(executing=executing)
        except sqlite3.Error as error:
            logger.warning("the next start takes this end for a kill: %s", error)

    def _train(self, request: Request) -> None:
        # After a failure nothing more is done: a run's requests would be, without the one before.
        if not self._failure:
            with self._noting(request):
                self._kills.note_begun(request)
                self._training.run(request)
        self._loop.call_soon_threadsafe(self._note_done, request.id)

    def _give_up(self, requests: Sequence[Request], missing: int) -> None:
        """Fail what cannot be done in order; all of it or, after a kill, none."""
        scope = requests[0].scope
        with self._noting(requests[0]), self.store.writing():
            if requests[0].seq != missing:
                self._training.drop_gradients(scope)  # of a batch that is not whole
            for one in requests:
                text = (
                    f"request {one.seq} of {scope} was not executed: request {missing}, which it "
                    f"has to follow, did not arrive within {self._times.gap_s:g} s. Gradients "
                    f"since the last optim_step are dropped."
                    if one.seq != missing
                    else f"request {one.seq} of {scope} arrived too late: the run went on."
                )
                text += " Continue from a checkpoint, or send the whole batch again."
                self.store.finish(one, refusal_result(text), keeps_body=False)
        for one in requests:
            self._loop.call_soon_threadsafe(self._note_done, one.id)

    @contextmanager
    def _noting(self, request: Request) -> Iterator[None]:
        """Keep the thread alive, and tell all who poll, where a result cannot be noted."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            logger.exception("%s %d of %s has no result", request.kind, request.seq, request.scope)
            self._failure = f"the server cannot write its journal: {error}. Start it again."

    def _expire(self) -> None:
        if self._expiry.is_due():
            self._expiry.run()
            self._scheduler.post(self._expiry.release_idle)

    def _note_done(self, name: str) -> None:
        self._events.pop(name).set()


def _is_number(value: Any, *, of: range = _NUMBERS) -> bool:
    """Return whether a value of JSON numbers a request, a run or a sampler."""
    return isinstance(value, int) and not isinstance(value, bool) and value in of
