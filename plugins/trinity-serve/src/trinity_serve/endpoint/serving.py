"""The state of a server whose runs are made by agents outside: which call belongs to which run."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trinity.common.ports import RunKey
from trinity.errors import DataError

from trinity_serve.endpoint.fields import Refusal, run_over, text
from trinity_serve.endpoint.keys import Entry, KeyRing
from trinity_serve.endpoint.service import EndpointService
from trinity_serve.endpoint.session import Session
from trinity_serve.ports import OWN_NAMES, RunOverError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.models.auxiliary import AuxiliaryModel
    from trinity.common.models.model import ModelWrapper

    from trinity_serve.endpoint.chat import ChatCompletion, ChatRequest
    from trinity_serve.endpoint.service import Target
    from trinity_serve.ports import RunStore, ServedRun

RUN_HEADER, TASK_HEADER = "x-trinity-run", "x-trinity-task"
BATCH, BESIDE = "serve", "serve-beside"  # of the keys that seed requests
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceEntry(Entry):
    """What a key of a service stands for."""

    owner: str  # of runs that are given no name


class ServedSession(Session):
    """A run of an agent outside; what it is served lies in the store before it leaves.

    Args:
        model: of the run, on the engine that all of its calls go to.
        keep: stores what a call was answered with; raises a DataError where it cannot.
    """

    def __init__(
        self,
        model: ModelWrapper,
        *,
        keys: KeyRing,
        keep: Callable[[Sequence[Experience], ChatCompletion], None],
    ) -> None:
        super().__init__(model, keys=keys, base_url="", loop=asyncio.get_running_loop())
        self._keep = keep
        self.num_open = 0  # calls that are being answered

    async def ask(self, request: ChatRequest, *, entry: Entry) -> ChatCompletion:
        """Return the answer to a call, and count it while it is made."""
        self.num_open += 1
        try:
            return await super().ask(request, entry=entry)
        finally:
            self.num_open -= 1

    def deliver(self, served: ChatCompletion, *, record: bool) -> None:
        """Store an answer that a client is about to hear.

        Raises:
            Refusal: it cannot be stored, so it is not given either.
        """
        if self._is_closed and not served.is_delivered:
            raise run_over()
        super().deliver(served, record=record)

    def record(self, served: ChatCompletion) -> None:
        """Store an answer.

        Raises:
            Refusal: it cannot be stored, so it is not given either.
        """
        try:
            self._keep([reply.experience for reply in served.replies], served)
        except RunOverError as error:
            agent = str(served.replies[0].info.get("agent", ""))
            raise _over(error.run, agent=agent) from error
        except DataError as error:
            raise not_stored(error) from error


class _Lobby(Session):
    """What a key of a service stands for until it is known which run, or which other model."""

    def __init__(self, service: ServingService) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(service.models[0], keys=service.keys, base_url="", loop=loop)
        self._service = service

    def beside(self, name: str) -> Entry | None:
        model = self._service.asked_beside(name)
        if model is None:
            return None
        session = Session(model, keys=self._ring, base_url="", loop=self._loop)
        return Entry(session=session, agent="", record=False, force_sampling=False)


class ServingService(EndpointService):
    """Which run a call belongs to, and which engine answers it; lives on the loop of its server.

    Args:
        models: one for each engine.
        store: of the runs.
        keys: that are let in.
        beside: further models, asked by their names; of their calls nothing is stored.
        logs_requests: whether each request is a line of the log.
    """

    def __init__(
        self,
        models: Sequence[ModelWrapper],
        *,
        store: RunStore,
        keys: Sequence[str],
        beside: Sequence[AuxiliaryModel] = (),
        logs_requests: bool = False,
    ) -> None:
        super().__init__(logs_requests=logs_requests)
        self.store = store
        self.models = list(models)
        self.num_tokens = {"prompt": 0, "completion": 0}  # of stored replies
        self._own_keys = [key.encode() for key in keys]
        self._sessions: dict[int, ServedSession] = {}
        self._beside = {one.model.model_name: one for one in beside}
        self._num_beside = 0
        self.models[0].beside = {name: one.model for name, one in self._beside.items()}

    def asked_beside(self, name: str) -> ModelWrapper | None:
        """Return an auxiliary model for one call, its engines in turns; None: none has the name."""
        found = self._beside.get(name)
        if found is None:
            return None
        self._num_beside += 1
        engine = found.engines[self._num_beside % len(found.engines)]
        return found.model.for_run(RunKey(batch=BESIDE, task=self._num_beside), engine=engine)

    def entry(self, key: str, *, client: str = "") -> ServiceEntry:
        """Return what a key of the service stands for, wherever the call came from.

        Raises:
            Refusal: 401, it is none.
        """
        given = key.encode("utf-8", "surrogateescape")
        if not any(hmac.compare_digest(given, own) for own in self._own_keys):
            raise Refusal(
                401,
                "the key is missing or unknown; send one of TRINITY_SERVE_KEYS, or the one that "
                "the service printed when it started, as 'Authorization: Bearer KEY'.",
                code="invalid_api_key",
            )
        return ServiceEntry(
            session=_Lobby(self),
            agent="",
            record=True,
            force_sampling=True,
            owner=hashlib.blake2b(given, digest_size=6).hexdigest(),
        )

    def target(
        self, body: Mapping[str, Any], *, entry: Entry, headers: Mapping[str, str]
    ) -> Target:
        """Return the model that a body names, for the run that the call belongs to.

        Raises:
            Refusal: no model has the name, or the run takes no further calls.
        """
        assert isinstance(entry, ServiceEntry), "this service gave it"
        asked = super().target(body, entry=entry, headers=headers)
        if asked.session is not entry.session:
            return asked  # another model's, which is of no run
        run = self._run(headers, owner=owner_of(entry, body), agent=asked.agent)
        session = self._sessions.get(run.number) or self._begun(run)
        return replace(asked, session=session, entry=replace(entry, session=session))

    def busy(self) -> list[int]:
        """Return the runs that are being answered; from any thread."""
        return [run for run, session in list(self._sessions.items()) if session.num_open]

    def forget(self, run: int) -> None:
        """Refuse further calls of a run, and cancel what is being answered; from any thread."""
        session = self._sessions.pop(run, None)
        if session is not None:
            session.close()

    def _run(self, headers: Mapping[str, str], *, owner: str, agent: str) -> ServedRun:
        name, task = _name(headers, RUN_HEADER), _name(headers, TASK_HEADER)
        if name.startswith(OWN_NAMES):
            raise _bad_header(
                RUN_HEADER, name, f"names that begin with {OWN_NAMES} are the service's own"
            )
        try:
            if name:
                run = self.store.run(name, owner=owner, task=task)
            else:
                run = self.store.unnamed(owner, task=task)
            self.store.touch(run.number, agent=agent)
            return run
        except RunOverError as error:
            raise _over(error.run, agent=agent) from error
        except DataError as error:
            raise not_stored(error) from error

    def _begun(self, run: ServedRun) -> ServedSession:
        model = self.models[zlib.crc32(run.name.encode()) % len(self.models)]
        own = model.for_run(RunKey(batch=BATCH, task=run.number, request=run.num_calls))

        def keep(experiences: Sequence[Experience], served: ChatCompletion) -> None:
            agent = str(experiences[0].info.get("agent", ""))
            self.store.keep(run.number, experiences, request=served.number, agent=agent)
            self.num_tokens["prompt"] += served.num_prompt_tokens
            self.num_tokens["completion"] += served.num_sampled

        session = self._sessions[run.number] = ServedSession(own, keys=self.keys, keep=keep)
        return session


def owner_of(entry: ServiceEntry, body: Mapping[str, Any]) -> str:
    """Return who makes a run that is given no name: the key, and the ``user`` of the body."""
    user = text(body, "user")
    if not user:
        return entry.owner
    return hashlib.blake2b(f"{entry.owner}/{user}".encode(), digest_size=6).hexdigest()


def not_stored(error: DataError) -> Refusal:
    """Return that nothing is answered, as nothing can be kept."""
    return Refusal(
        503,
        f"the service cannot store its replies: {error}",
        code="not_stored",
        headers={"retry-after": "10"},
    )


def _name(headers: Mapping[str, str], header: str) -> str:
    name = headers.get(header, "")
    if name and not _NAME.match(name):
        raise _bad_header(header, name, "use up to 128 of A-Z a-z 0-9 _ . and -")
    return name


def _bad_header(header: str, value: str, problem: str) -> Refusal:
    return Refusal(
        400,
        f"the header {header} is {value[:80]!r}; {problem}.",
        code="invalid_request_error",
        param=header,
    )


def _over(run: ServedRun, *, agent: str) -> Refusal:
    if run.state == "dropped":
        why = "got no reward in time (explorer.max_timeout) and was dropped"
    elif run.state == "open":
        why = f"already has a reward for its agent {agent!r}"
    else:
        why = "already has its reward"
    return Refusal(
        409,
        f"the run {run.name!r} {why}, so it accepts no further calls; use another name in the "
        f"header X-Trinity-Run for the next rollout.",
        code="run_over",
    )
