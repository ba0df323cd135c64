"""What stands behind the keys of one run attempt: asks the model, records what was served."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Endpoint
from trinity.errors import ModelError, PromptTooLongError, TemplateRefusesError

from trinity_serve.endpoint.attempts import CallAttempt, CallAttempts
from trinity_serve.endpoint.chat import ChatCompletion
from trinity_serve.endpoint.fields import (
    Refusal,
    bad_request,
    engine_failed,
    field_refused,
    run_over,
    too_slow,
)
from trinity_serve.endpoint.keys import Entry

if TYPE_CHECKING:
    from trinity.common.models.exchange import PendingCall
    from trinity.common.models.model import ModelWrapper
    from trinity.common.ports import Completion

    from trinity_serve.endpoint.chat import ChatRequest
    from trinity_serve.endpoint.keys import KeyRing

logger = logging.getLogger("trinity.endpoint")

# the configuration's win where sampling is forced
FORCED = ("temperature", "top_p", "top_k", "min_p")


class Session:
    """One run attempt: OPEN -> CLOSED.

    Asking, delivering and ``beside`` are for the loop of the server, all else for any thread.

    Args:
        model: of the run.
        keys: of the server.
        base_url: of the server.
        loop: of the server.
    """

    def __init__(
        self,
        model: ModelWrapper,
        *,
        keys: KeyRing,
        base_url: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.model = model
        self.failure: ModelError | None = None
        self._ring = keys
        self._base_url = base_url
        self._loop = loop
        self._own_keys: list[str] = []
        self._attempts = CallAttempts()
        self._unheard: dict[str, tuple[ChatCompletion, bool]] = {}  # by the names of their replies
        self._beside: dict[str, Entry] = {}  # auxiliary models, by name
        self._num_served = 0
        self._has_forced = self._is_closed = False
        self._lock = threading.Lock()

    @property
    def num_served(self) -> int:
        """Return how many calls were answered."""
        return self._num_served

    @property
    def num_undelivered(self) -> int:
        """Return how many answers to be recorded no client has heard."""
        unheard = list(self._unheard.values())  # a copy: the loop of the server changes it
        return len({id(served) for served, is_wanted in unheard if is_wanted})

    def beside(self, name: str) -> Entry | None:
        """Return what stands for an auxiliary model of the run; None: none has the name."""
        model = self.model.beside.get(name)
        if model is None:
            return None
        if name not in self._beside:
            key = model.endpoint(record=False, force_sampling=False).key
            self._beside[name] = self._ring.find(key)
        return self._beside[name]

    def adapter(self, name: str, *, entry: Entry) -> Entry | None:
        """Return what stands for the run's model with one of its adapters.

        Its calls are recorded and sampled as those of ``entry``.
        """
        how = {"record": entry.record, "force_sampling": entry.force_sampling}
        place = f"{name} {entry.agent} {how}"
        if place not in self._beside:
            key = self.model.adapter(name).endpoint(entry.agent, **how).key
            self._beside[place] = self._ring.find(key)
        return self._beside[place]

    def endpoint(
        self, *, agent: str = "", record: bool = True, force_sampling: bool = False
    ) -> Endpoint:
        """Return an endpoint with a key of its own; see ``RunSession``."""
        entry = Entry(session=self, agent=agent, record=record, force_sampling=force_sampling)
        key = self._ring.new(entry)
        with self._lock:
            self._own_keys.append(key)
            is_closed = self._is_closed
        if is_closed:
            self._ring.forget([key])
        return Endpoint(base_url=self._base_url, key=key, model=self.model.model_name)

    def close(self) -> None:
        """Refuse what comes, and cancel what is being answered; safe to call twice."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            keys = list(self._own_keys)
        if was_closed:
            return
        self._ring.forget(keys)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._attempts.cancel)

    async def ask(self, request: ChatRequest, *, entry: Entry) -> ChatCompletion:
        """Return the answer to a call; one that is repeated is sampled once.

        Raises:
            Refusal: why there is none.
        """
        if self._is_closed:
            raise run_over()
        attempt = self._attempts.find(request.retry)
        if attempt is None:
            answer = asyncio.create_task(self._answer(request, entry=entry))
            attempt = CallAttempt(answer, request.retry.count)
            self._attempts.add(request.retry, attempt)
        try:
            return await attempt.reply()
        except asyncio.CancelledError:
            if self._is_closed:
                raise run_over() from None
            raise

    def deliver(self, served: ChatCompletion, *, record: bool) -> None:
        """Note that a client is about to hear an answer; what is heard is trained on."""
        self._num_served += not served.is_delivered
        self._train(served, is_wanted=record)

    async def _answer(self, request: ChatRequest, *, entry: Entry) -> ChatCompletion:
        asked = self._asked(request, entry=entry)
        self._hear_what_continues(asked)
        try:
            completions = await self._completions(asked)
        except ModelError as error:
            refused = field_refused(error, request)
            if refused is not None:  # the engine is well, and asking again would not help
                raise refused from error
            self.failure = error
            raise engine_failed(str(error)) from error
        except TimeoutError as error:
            self.failure = self.model.no_answer()
            raise too_slow(str(self.failure)) from error
        self.failure = None
        exchanges = self.model.exchanges
        replies = exchanges.replies(
            asked, completions, calls=request.calls, max_calls=request.max_calls
        )
        served = ChatCompletion(created=int(time.time()), replies=tuple(replies))
        for place, reply in enumerate(replies):
            reply.info["agent"] = request.agent or reply.info.get("adapter", "")
            reply.eid.step = reply.key.request
            reply.eid.suffix = f"choice-{place}" if place else ""
            exchanges.offer(reply)
            if reply.can_continue:
                self._unheard[reply.name] = (served, entry.record)
        return served

    def _asked(self, request: ChatRequest, *, entry: Entry) -> PendingCall:
        sampling = self._sampling(request, is_forced=entry.force_sampling)
        exchanges = self.model.exchanges
        try:
            if request.prompt is not None:
                return exchanges.send_text(request.prompt, **sampling)
            prompt = exchanges.prompt(
                request.messages,
                tools=request.tools,
                options=request.template_options,
                temperature=sampling.get("temperature"),
            )
            return exchanges.send(prompt, **sampling)
        except PromptTooLongError as error:
            raise Refusal(400, str(error), code="context_length_exceeded") from error
        except TemplateRefusesError as error:
            raise Refusal(400, str(error), code="template_refuses", param="messages") from error
        except ModelError as error:
            raise field_refused(error, request) or bad_request(str(error)) from error

    def _sampling(self, request: ChatRequest, *, is_forced: bool) -> dict[str, Any]:
        sampling = dict(request.sampling)
        limit, asked = self.model.settings.max_response_tokens, sampling.get("max_tokens")
        if limit is not None and asked is not None:
            sampling["max_tokens"] = min(limit, asked)
        if request.structure is not None:
            sampling["structure"] = request.structure
        if is_forced:
            given = {name: sampling.pop(name) for name in FORCED if sampling.get(name) is not None}
            if given and not self._has_forced:
                self._has_forced = True
                logger.debug("an agent requested %s; using the configuration's values", given)
        return sampling

    async def _completions(self, asked: PendingCall) -> list[Completion]:
        if asked.future.done():
            return asked.future.result(0)
        limit_s = self.model.settings.request_timeout_s
        return await asyncio.wait_for(asyncio.wrap_future(asked.future), limit_s)

    def _hear_what_continues(self, asked: PendingCall) -> None:
        """Record the exchange that a call goes on with: its reply was heard after all."""
        before = asked.prompt.continues
        if before is not None and before.name in self._unheard:
            served, is_wanted = self._unheard[before.name]
            self._train(served, is_wanted=is_wanted)

    def _train(self, served: ChatCompletion, *, is_wanted: bool) -> None:
        if served.is_delivered or self._is_closed:
            return
        if is_wanted:
            self.record(served)
        served.is_delivered = True
        for reply in served.replies:
            self._unheard.pop(reply.name, None)

    def record(self, served: ChatCompletion) -> None:
        """Keep what a client is about to hear, or heard, so that it is trained on."""
        self.model.exchanges.train(served.replies)
