"""A call that is not answered: one sentence for the agent's author, in the shape of OpenAI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.endpoint.call import CanonicalCall
    from trinity.errors import ModelError


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


def structure_refused(error: ModelError, call: CanonicalCall) -> Refusal | None:
    """Return the refusal of a form of reply that the engine cannot hold; None: it is another error.

    It names the field: clients leave that out and ask again.
    """
    if call.structure is None or not str(error).startswith("structure"):
        return None
    name = "tool_choice" if call.calls == "forced" else "response_format"
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
        "the run that this key belongs to is over, so nothing is answered any more; end the agent "
        "with its run.",
        code="run_over",
    )
