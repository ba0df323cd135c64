"""The processes of a group as the one that directs them sees them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trinity.synchronizer.shared import Shared
    from trinity.synchronizer.shipment import Shipment

_LOOK_S = 0.5  # at one of those who have not answered


class MemberCall(Protocol):
    """A step that another process was told to take."""

    def result(self, *, timeout_s: float | None = None) -> Any:
        """Return what it gave (Any: each step its own).

        Raises:
            WorkerLostError: the process ended.
            TimeoutError: there is no answer yet.
            Exception: why it failed.
        """


class Member(Protocol):
    """A process that can be of a group."""

    @property
    def name(self) -> str:
        """Return the name of its room."""

    def start(self, step: str, *told: Any) -> MemberCall:
        """Let it take a step: ``device``, ``join``, ``send`` or ``receive``."""

    def leave(self, group: str) -> None:
        """Let it leave the group of that name, at once, whatever it waits for there."""


class Sender(Member, Protocol):
    """The trainer's process."""

    def pack(self) -> Shipment:
        """Copy the weights there, for this sync and for engines that come back after it."""

    def share(self, where: Collection[str]) -> Shared:
        """Copy the weights there to where processes of the same machine can have them.

        Args:
            where: in memory of the CPU, of the GPU, or both (``trinity.synchronizer.shared``).
        """

    def place(self) -> str:
        """Return where the members meet."""

    def end(self) -> None:
        """End the process."""


class Receiver(Member, Protocol):
    """An engine, and the process that is there for it."""

    def expect(self, sender: Any) -> int | None:
        """Say that what the sender packed is wanted; return which process is there; None: none.

        Any: it gives its copy to a process that comes later.
        """

    def load(self) -> None:
        """Let the process load what it received; it is waited for elsewhere."""

    def miss(self, *, ends: bool) -> None:
        """Note that the process is lost; ``ends``: it is there, and is to be ended."""


def outcomes_of(
    calls: Mapping[Member, MemberCall], *, limit_s: float, grace_s: float, group: str = ""
) -> dict[Member, Any]:
    """Return what each call gave, or the exception that it raised; TimeoutError: no answer.

    Once one has failed, the others are told to leave the group, in which they may wait for it.

    Args:
        calls: by who was called.
        limit_s: until the last answer.
        grace_s: until the last answer, once one has failed.
        group: that they are in, or are about to join; empty: none.
    """
    waiting, outcomes = dict(calls), dict[Member, Any]()
    has_failed = False
    deadline = time.monotonic() + limit_s
    while waiting:
        for member, call in list(waiting.items()):
            try:
                outcome = call.result(timeout_s=_LOOK_S)
            except TimeoutError as error:
                if time.monotonic() < deadline:
                    continue
                outcome = error
            except Exception as error:  # noqa: BLE001 -- what became of it is the caller's to judge
                outcome = error
            outcomes[member] = outcome
            del waiting[member]
            if isinstance(outcome, Exception) and not has_failed:
                has_failed, deadline = True, min(deadline, time.monotonic() + grace_s)
                for other in waiting if group else ():  # they may wait for this one
                    other.leave(group)
    return outcomes
