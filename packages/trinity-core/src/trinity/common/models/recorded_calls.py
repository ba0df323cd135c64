"""The recorded calls of one run: each reply as it was served, and as the experience it becomes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity.common.experience import EID, Experience

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from trinity.common.models.chat import Chat
    from trinity.common.models.chat_history import RecordedChat
    from trinity.common.ports import Completion, RunKey
    from trinity.common.ports.request import ParsedReply

REPLY_NAMES = "reply_names"  # in info: which calls an experience holds the replies of


@dataclass(kw_only=True, slots=True, eq=False)
class RecordedCall:
    """One reply of the model. Its experience is made when somebody asks for it.

    Ids and log-probabilities are held once, as the arrays of the conversation: a run holds all of
    its calls.

    Attributes:
        key: of the request.
        outcome: the engine's answer without its tokens; :attr:`completion` is all of it.
        parsed: what it says; the ids of its tool calls are ours, and nobody can guess them.
        conversation: that ends with the reply; a later call may continue it.
        chat: that was asked, as the experience tells it; None: it does not.
        num_prompt_tokens: of the request.
        opening: of the reply, as the prompt ends with it; mostly empty.
        text: that was sampled.
        truncate_status: of the experience.
        info: of the experience: what the call continues, and more.
        metrics: of the experience.
        eid: of the experience.
        made: the experience, once it was asked for.
    """

    key: RunKey
    outcome: Completion
    parsed: ParsedReply
    conversation: RecordedChat
    chat: Chat | None
    num_prompt_tokens: int
    opening: str
    text: str
    truncate_status: str | None
    info: dict[str, Any]  # Any: what is noted
    metrics: dict[str, float]
    eid: EID = field(default_factory=EID)
    made: Experience | None = None
    num_sampled: int = field(init=False)  # tokens

    def __post_init__(self) -> None:
        self.num_sampled = len(self.outcome.token_ids)
        self.outcome = replace(self.outcome, token_ids=(), logprobs=())

    @property
    def name(self) -> str:
        """Return the name of the reply, ``request-index``, unique in the run."""
        return self.conversation.name

    @property
    def can_continue(self) -> bool:
        """Return whether a later chat may go on with it."""
        return not self.conversation.chat.is_plain_text

    @property
    def version(self) -> int:
        """Return the version of the oldest weights that sampled it."""
        return int(self.info["model_version"])

    @property
    def completion(self) -> Completion:
        """Return the engine's answer, with the ids and the log-probabilities of its tokens."""
        added = self.conversation.added
        return replace(
            self.outcome,
            token_ids=tuple(added[len(added) - self.num_sampled :]),
            logprobs=tuple(self.conversation.sampled),
        )

    @property
    def finish_reason(self) -> str:
        """Return ``tool_calls`` where the reply calls tools, else ``stop`` or ``length``."""
        return "tool_calls" if self.parsed.tool_calls else self.outcome.finish_reason

    @property
    def prompt_token_ids(self) -> list[int]:
        """Return what the engine was asked with."""
        return self.conversation.ids[: self.num_prompt_tokens].tolist()

    @property
    def experience(self) -> Experience:
        """Return prompt and reply as they are trained; always the same object."""
        if self.made is None:
            self.info.setdefault(REPLY_NAMES, [[0, self.name]])
            self.made = self._experience()
        return self.made

    def _experience(self) -> Experience:
        last, chat = self.conversation, self.chat
        return Experience(
            tokens=ids_tensor(last),
            prompt_length=self.num_prompt_tokens,
            eid=self.eid,
            logprobs=list(last.sampled),  # type: ignore[arg-type]  # becomes a tensor
            temperature=last.temperature,
            truncate_status=self.truncate_status,
            info=self.info,
            metrics=self.metrics,
            prompt_text=last.prompt_text + self.opening,
            response_text=self.text,
            messages=None if chat is None else [*map(dict, chat.messages), self.parsed.message()],
            tools=None if chat is None else [*map(dict, chat.tools)] or None,
        )


class CallRecorder:
    """Keeps calls in the order of their requests; thread-safe."""

    def __init__(self) -> None:
        self._calls: list[RecordedCall] = []
        self._lock = threading.Lock()

    def add(self, calls: Iterable[RecordedCall]) -> None:
        """Record calls."""
        with self._lock:
            self._calls += calls

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._calls.clear()

    def in_order(self) -> list[RecordedCall]:
        """Return the calls in the order of their requests."""
        with self._lock:  # those that were asked at once, too
            return sorted(self._calls, key=lambda call: call.key)


def ids_tensor(conversation: RecordedChat) -> Tensor:
    """Return ``[L]`` int64, the ids of a conversation."""
    import numpy as np
    import torch

    return torch.from_numpy(np.array(conversation.ids, dtype=np.int64))


def version_info(spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return what an experience's ``info`` says: the oldest version, and where there are more.

    >>> version_info([(0, 4)])
    {'model_version': 4}
    >>> version_info([(0, 4), (9, 5)])
    {'model_version': 4, 'version_spans': [[0, 4], [9, 5]], 'model_version_drift': 1}

    Args:
        spans: the first token of each stretch behind the prompt, and its version.
    """
    info: dict[str, Any] = {"model_version": min(version for _, version in spans)}
    if len(spans) > 1:
        info["version_spans"] = [list(span) for span in spans]
        info["model_version_drift"] = max(spans, key=lambda one: one[1])[1] - info["model_version"]
    return info
