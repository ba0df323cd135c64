"""The recorded calls of one run, as experiences."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.models.history import Conversation
    from trinity.common.ports import Completion, RunKey

__all__ = [
    "REPLY_NAMES",
    "CallRecorder",
    "ModelCall",
    "RecordedCall",
    "joined_spans",
    "name_of",
    "order_of",
    "reply_info",
    "spans_of",
    "version_info",
]


Spans = tuple[tuple[int, int], ...]


def spans_of(completion: Completion) -> Spans:
    """Return ``(first token, version)`` of each stretch of one version, in order."""
    return completion.version_spans or ((0, int(completion.weight_version)),)


def joined_spans(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> Spans:
    """Return the stretches of a text that goes on, without those that change nothing.

    >>> joined_spans([(0, 1)], [(8, 1), (12, 3)])
    ((0, 1), (12, 3))
    """
    joined = [*before]
    for first, version in after:
        if not joined or joined[-1][1] != version:
            joined.append((first, version))
    return tuple(joined)


def version_info(spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return what an experience's ``info`` says: the oldest version, and where there are more.

    >>> version_info([(0, 4)])
    {'model_version': 4}
    >>> version_info([(0, 4), (9, 5)])
    {'model_version': 4, 'version_spans': [[0, 4], [9, 5]]}
    """
    info: dict[str, Any] = {"model_version": min(version for _, version in spans)}
    if len(spans) > 1:
        info["version_spans"] = [list(span) for span in spans]
    return info


REPLY_NAMES = "reply_names"  # in info


def name_of(request: int, index: int) -> str:
    """Return the name of a reply.

    Args:
        request: its number in the run, from 0.
        index: of the reply among those of the request, from 0.
    """
    return f"{request}-{index}"


def reply_info(replies: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return what ``info`` says of the replies in an experience.

    >>> reply_info([(0, "3-0"), (9, "5-0")])
    {'reply_names': [[0, '3-0'], [9, '5-0']]}

    Args:
        replies: the first token of each behind the prompt, and its name.
    """
    return {REPLY_NAMES: [list(reply) for reply in replies]}


def order_of(info: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
    """Return ``(first token, (request, index))`` of each reply; none where info does not say it.

    >>> order_of({"reply_names": [[0, "3-0"], [9, "12-1"]]})
    [(0, (3, 0)), (9, (12, 1))]
    >>> order_of({"reply_names": "a workflow's own"})
    []
    """
    try:
        return [(int(first), _numbers(name)) for first, name in info.get(REPLY_NAMES, ())]
    except (TypeError, ValueError, AttributeError):  # an entry of that name is the workflow's own
        return []


def _numbers(name: str) -> tuple[int, int]:
    request, index = name.split("-")
    return int(request), int(index)


class ServedReply(Protocol):
    """What makes an experience, or holds one."""

    @property
    def experience(self) -> Experience:
        """Return it; always the same object."""

    @property
    def info(self) -> Mapping[str, Any]:
        """Return what is noted of it, without making it (Any: as the experience has it)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelCall:
    """An experience that is there."""

    experience: Experience

    @property
    def info(self) -> Mapping[str, Any]:
        """Return what is noted of it (Any: as the experience has it)."""
        return self.experience.info


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecordedCall:
    """One reply."""

    key: RunKey  # of the request
    said: ServedReply
    conversation: Conversation | None = None  # None: it cannot go on

    @property
    def experience(self) -> Experience:
        """Return the reply as it is trained."""
        return self.said.experience

    @property
    def version(self) -> int:
        """Return the version of the oldest weights that sampled it."""
        return int(self.said.info["model_version"])


class CallRecorder:
    """Keeps replies in the order of their requests; thread-safe."""

    def __init__(self) -> None:
        self._replies: list[RecordedCall] = []
        self._lock = threading.Lock()

    def add(self, replies: Iterable[RecordedCall]) -> None:
        """Record replies."""
        with self._lock:
            self._replies += replies

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._replies.clear()

    def exchanges(self) -> list[Experience]:
        """Return one experience for each reply."""
        return [reply.experience for reply in self._in_order()]

    def chains(self) -> list[Experience]:
        """Return one experience for each unbroken chain of replies.

        Where a reply was continued in two ways, the second chain holds it masked: it is trained on
        once.
        """
        replies = self._in_order()
        inner = {id(before) for reply in replies for before in _before(reply.conversation)}
        chains: list[Experience] = []
        taken: set[int] = set()
        for reply in replies:
            conversation = reply.conversation
            if conversation is None:
                chains.append(reply.experience)
            elif id(conversation) not in inner:
                chains.append(_chain(reply, taken))
                taken |= {id(one) for one in (conversation, *_before(conversation))}
        return chains

    def _in_order(self) -> list[RecordedCall]:
        with self._lock:  # those that were asked at once, too
            return sorted(self._replies, key=lambda reply: reply.key)


def _before(conversation: Conversation | None) -> list[Conversation]:
    """Return the conversations that this one holds the replies of, the latest first."""
    found: list[Conversation] = []
    earlier = conversation.before if conversation is not None else None
    while earlier is not None:
        found.append(earlier)
        earlier = earlier.before
    return found


def _chain(reply: RecordedCall, taken: set[int]) -> Experience:
    """Return the chain that ends with the reply; what is taken is masked."""
    last = reply.conversation
    assert last is not None, "the caller has looked"
    earlier = _before(last)
    if not earlier:
        return reply.experience
    start = earlier[-1].prompt_length
    mask = list(last.action_mask)
    for conversation in earlier:
        if id(conversation) in taken:
            masked = len(conversation.token_ids) - start
            mask[:masked] = [False] * masked
            break
    return replace(
        reply.experience,
        tokens=[*last.token_ids],  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=start,
        logprobs=[*last.logprobs],  # type: ignore[arg-type]
        action_mask=mask,  # type: ignore[arg-type]
        prompt_text=earlier[-1].prompt_text,
        info=reply.experience.info | version_info(last.spans) | reply_info(last.replies),
    )
