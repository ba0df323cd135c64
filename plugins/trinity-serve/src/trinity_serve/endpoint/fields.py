"""Read one field of a body, or say in one sentence what is wrong with it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.errors import ModelError

    from trinity_serve.endpoint.chat import ChatRequest


class Refusal(Exception):  # noqa: N818 -- not a fault of ours
    """Why a call is not answered.

    Attributes:
        status: of HTTP.
        code: a word for programs.
        param: the field that is wrong, if one is.
        headers: further ones of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        if status < 500:
            self.headers["x-should-retry"] = "false"  # the SDKs would ask again after a 409

    @property
    def kind(self) -> str:
        """Return the type of error that OpenAI's SDK knows the status by."""
        kinds = {401: "authentication_error", 404: "not_found_error", 409: "conflict_error"}
        if self.status >= 500:
            return "server_error"
        return kinds.get(self.status, "invalid_request_error")

    def body(self) -> bytes:
        """Return the body of the answer, as OpenAI shapes it."""
        error = {
            "message": str(self),
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()


def bad_request(message: str) -> Refusal:
    """Return the refusal of a body that cannot be read."""
    return Refusal(400, message, code="invalid_request_error")


def bad_field(name: str, problem: str) -> Refusal:
    """Return the refusal of one field.

    Args:
        name: of the field.
        problem: what is wrong with it, and what to do; follows the name.
    """
    return Refusal(400, f"{name} {problem}", code="invalid_request_error", param=name)


_OF_SOME_ENGINES = ("presence_penalty", "frequency_penalty", "logit_bias", "seed")


def field_refused(error: ModelError, request: ChatRequest) -> Refusal | None:
    """Return the refusal of a field that the engine cannot honour; None: it is another error.

    It names the field: clients leave that out and ask again.
    """
    for name in _OF_SOME_ENGINES:
        if name in request.sampling and str(error).startswith(name):
            return bad_field(name, f"cannot be honoured: {error}")
    if request.structure is None or not str(error).startswith("structure"):
        return None
    name = "tool_choice" if request.calls == "forced" else "response_format"
    return bad_field(name, f"cannot be honoured: {error}")


def engine_failed(problem: str) -> Refusal:
    """Return that the engine could not answer; asking again may help."""
    return Refusal(
        503,
        f"the rollout engine failed: {problem}",
        code="engine_failed",
        headers={"retry-after": "1"},
    )


def too_slow(problem: str) -> Refusal:
    """Return that the engine did not answer in time."""
    return Refusal(504, problem, code="request_timeout_s")


def run_over() -> Refusal:
    """Return that the run of a key has ended."""
    return Refusal(
        409,
        "the rollout of this key has ended, so the endpoint accepts no further calls; end the "
        "agent with its rollout.",
        code="run_over",
    )


Body = dict[str, Any]  # Any: what a client sends


def number(
    body: Mapping[str, Any], name: str, *, low: float, high: float = math.inf, above: bool = False
) -> float | None:
    """Return a number; None: it is not given."""
    value = body.get(name)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (low <= value <= high) or (above and value == low):
        bound = "above" if above else "at least"
        top = "" if high == math.inf else f" and at most {high:g}"
        raise bad_field(name, f"is {_shown(value)}; give a number {bound} {low:g}{top}.")
    return float(value)


def whole(body: Mapping[str, Any], name: str, *, low: int, high: int | None = None) -> int | None:
    """Return a whole number; None: it is not given."""
    value = body.get(name)
    if value is None:
        return None
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):
        top = "" if high is None else f" and at most {high}"
        raise bad_field(name, f"is {_shown(value)}; give a whole number, at least {low}{top}.")
    return int(value)


def boolean(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a truth value."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_field(name, f"is {_shown(value)}; give true or false.")
    return value


def text(body: Mapping[str, Any], name: str, *, path: str = "") -> str | None:
    """Return a text; None: it is not given."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_field(path or name, f"is {_shown(value)}; give a text.")
    return value


def mapping(body: Mapping[str, Any], name: str, *, path: str = "") -> Body | None:
    """Return an object; None: it is not given."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise bad_field(path or name, f"is {_shown(value)}; give an object.")
    return value


def items(body: Mapping[str, Any], name: str, *, path: str = "") -> list[Body]:
    """Return a list of objects; empty: it is not given."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad_field(path or name, f"is {_shown(value)}; give a list of objects.")
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            raise bad_field(f"{path or name}[{place}]", f"is {_shown(item)}; give an object.")
    return value


def known_word(value: Any, name: str, words: tuple[str, ...]) -> str:  # Any: a client's
    """Return the value of a field that has to be one of these words."""
    if value not in words:
        raise bad_field(name, f"is {_shown(value)}; give one of {', '.join(words)}.")
    return str(value)


def _shown(value: Any) -> str:  # Any: a client's
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
