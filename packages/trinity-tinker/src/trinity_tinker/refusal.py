"""Why a request is not answered, or a unit of work failed."""

from __future__ import annotations

__all__ = ["Refused", "RequestError"]


class Refused(Exception):  # noqa: N818 -- not a fault of ours
    """A unit of work that cannot be done as it was asked for: the client's future fails with it."""


class RequestError(Exception):
    """A request that is answered with a status of HTTP instead of a unit of work.

    Attributes:
        status: of HTTP. Never 409 or 5xx for what a client did: it would send it again.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
