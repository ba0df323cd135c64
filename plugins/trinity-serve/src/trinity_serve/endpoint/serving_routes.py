"""What a service is asked beside its model: feedback, commit, metrics."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

from trinity_serve.endpoint.dialect import dumped
from trinity_serve.endpoint.fields import Refusal, bad_field, mapping, text
from trinity_serve.endpoint.serving import not_stored, owner_of
from trinity_serve.ports import DamagedReplyError, RewardRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from trinity_serve.endpoint.http import Http
    from trinity_serve.endpoint.serving import ServingService

_FIELDS = ("run", "reward", "metrics", "agent", "user")
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class CountedApp:
    """An application whose answers are counted by their status.

    Args:
        app: it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.num_answers: dict[int, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and count."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self.num_answers[status] = self.num_answers.get(status, 0) + 1
            await send(message)

        await self._app(scope, receive, counted)


class ServingRoutes:
    """Answers what is no call of the model.

    Args:
        service: which runs there are.
        committed: called when somebody committed.
        num_answers: how many there were, by status.
    """

    def __init__(
        self,
        service: ServingService,
        *,
        committed: Callable[[], None],
        num_answers: Callable[[], Mapping[int, int]],
    ) -> None:
        self._service = service
        self._committed = committed
        self._num_answers = num_answers

    async def feedback(self, http: Http) -> None:
        """Give a run, or one of its agents, its reward."""
        entry = self._service.entry(http.key)
        body, _ = await http.json()
        _check_fields(body)
        reward, metrics = _finite(body.get("reward"), "reward"), _metrics(body)
        agent = text(body, "agent") or ""
        try:
            name = text(body, "run") or self._service.store.latest(owner_of(entry, body))
            run, count = self._service.store.reward(name, reward, agent=agent, metrics=metrics)
        except RewardRefusedError as error:
            raise _refused(error, name=name, agent=agent) from error
        except DataError as error:
            raise not_stored(error) from error
        if not agent:
            self._service.forget(run)
        await http.answer(200, dumped({"run": name, "experiences": count}))

    async def commit(self, http: Http) -> None:
        """Hand all rewarded runs to the buffer."""
        self._service.entry(http.key)
        try:
            num_runs, num_experiences = self._service.store.commit()
        except DamagedReplyError as error:
            raise Refusal(409, str(error), code="damaged_reply") from error
        except DataError as error:
            raise not_stored(error) from error
        self._committed()
        await http.answer(200, dumped({"runs": num_runs, "experiences": num_experiences}))

    async def metrics(self, http: Http) -> None:
        """Say how the service does, as Prometheus reads it."""
        service = self._service
        service.entry(http.key)
        try:
            num_runs, num_forgotten = service.store.counts(), service.store.forgotten()
        except DataError as error:
            raise _not_read(error) from error
        lines = [
            *_family("answers_total", "counter", "HTTP answers by status", "status",
                     self._num_answers()),
            *_family("open_requests", "gauge", "requests that are being answered", "",
                     {"": service.num_open}),
            *_family("tokens_total", "counter", "tokens of stored replies and their prompts",
                     "kind", service.num_tokens),
            *_family("runs", "gauge", "rollouts; one with several rewards counts for each", "state",
                     num_runs),
            *_family("forgotten_total", "counter", "deleted data of finished rollouts", "kind",
                     num_forgotten),
            *_family("model_version", "gauge", "policy version of the engine", "engine",
                     {place: model.model_version for place, model in enumerate(service.models)}),
        ]  # fmt: skip
        await http.answer(200, "".join(lines).encode(), content_type=_TEXT)


def _family(
    name: str, kind: str, meaning: str, label: str, values: Mapping[Any, int]
) -> list[str]:  # Any: what a label is
    full = f"trinity_serve_{name}"
    rows = [
        f'{full}{{{label}="{key}"}} {value}\n' if label else f"{full} {value}\n"
        for key, value in values.items()
    ]
    return [f"# HELP {full} {meaning}\n", f"# TYPE {full} {kind}\n", *rows]


def _check_fields(body: Mapping[str, Any]) -> None:
    for name in body:
        if name not in _FIELDS:
            raise bad_field(name[:80], f"is no field of feedback; it has {', '.join(_FIELDS)}.")


def _metrics(body: Mapping[str, Any]) -> dict[str, float]:
    given = mapping(body, "metrics") or {}
    return {name: _finite(value, f"metrics.{name}") for name, value in given.items()}


def _finite(value: Any, name: str) -> float:  # Any: a client's
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None:
        raise bad_field(name, "is missing; give a number.")
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        number = math.nan
    if not math.isfinite(number):
        raise bad_field(name, f"is {f'{value!r}'[:40]}; give a finite number.")
    try:
        struct.pack("<f", number)  # what the trainer computes with
    except OverflowError:
        raise bad_field(name, f"is {number!r}; give a number between -3.4e38 and 3.4e38.") from None
    return number


def _not_read(error: DataError) -> Refusal:
    """Return that nothing is said, as the store cannot be read."""
    return Refusal(
        503,
        f"the service cannot read its store: {error}",
        code="not_stored",
        headers={"retry-after": "10"},
    )


def _refused(error: RewardRefusedError, *, name: str, agent: str) -> Refusal:
    run = f"the run {name[:128]!r}" if name else "a run of this key and user"
    if error.why == "given":
        whose = f"the agent {agent!r} of {run}" if agent else run
        return Refusal(409, f"{whose} already has its reward.", code="feedback_given")
    if error.why == "dropped":
        return Refusal(
            404,
            f"{run} was dropped, because it got no reward in time. Raise explorer.max_timeout "
            f"if that is too short.",
            code="run_dropped",
        )
    if error.why == "empty" and error.agents:
        known = ", ".join(map(repr, error.agents))
        return Refusal(
            404,
            f"{run} has no call of the agent {agent!r} that waits for a reward; its agents: "
            f"{known}.",
            code="agent_not_found",
        )
    if error.why == "empty":
        what = f"there is no answered call of {run}"
    else:
        what = f"{run} is unknown, or was deleted after explorer.keep_runs_s"
    return Refusal(
        404,
        f"{what}; name the run as its calls did in the header X-Trinity-Run.",
        code="run_not_found",
    )
