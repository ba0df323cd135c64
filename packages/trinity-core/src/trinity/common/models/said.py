"""One reply of a model to a client: as it is served, and as it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity.common.experience import EID, Experience
from trinity.common.models.chat_format import reply_prefix
from trinity.common.models.reply_names import REPLY_NAMES

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.models.call import Call
    from trinity.common.models.history import Conversation
    from trinity.common.models.turn import Turn
    from trinity.common.ports import Completion, RunKey
    from trinity.common.ports.reply import ParsedReply

__all__ = ["Reply"]


@dataclass(kw_only=True, slots=True, eq=False)
class Reply:
    """One reply. Its experience is made when somebody asks for it: until then a run holds little.

    Attributes:
        call: that it answers; None: nobody needs it any more.
        outcome: the engine's answer: how it ended, the version of the weights; :attr:`completion`
            is all of it.
        parsed: what it says; the ids of its tool calls are ours, and nobody can guess them.
        conversation: that may go on after it; None: a plain text, which cannot.
        name: of the exchange, unique in the run.
        key: of the request.
        turn: that was asked; None: a plain text.
        num_prompt_tokens: of the request.
        text: that was sampled.
        info: of the experience: what the exchange continues, and more.
        metrics: of the experience.
        eid: of the experience.
        made: the experience, once it was asked for.
    """

    call: Call | None
    outcome: Completion
    parsed: ParsedReply
    conversation: Conversation | None
    name: str
    key: RunKey
    turn: Turn | None
    num_prompt_tokens: int
    text: str
    info: dict[str, Any]  # Any: what is noted
    metrics: dict[str, float]
    eid: EID = field(default_factory=EID)
    made: Experience | None = None
    num_sampled: int = field(init=False)  # tokens

    def __post_init__(self) -> None:
        """Hold ids and log-probabilities once: a conversation has them, as arrays."""
        self.num_sampled = len(self.outcome.token_ids)
        if self.conversation is not None:
            self.outcome = replace(self.outcome, token_ids=(), logprobs=())

    @property
    def completion(self) -> Completion:
        """Return the engine's answer, with the ids and the log-probabilities of its tokens."""
        if self.conversation is None:
            return self.outcome
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
        if self.conversation is None:
            ids: list[int] = self.experience.tokens.tolist()
        else:
            ids = self.conversation.ids.tolist()
        return ids[: self.num_prompt_tokens]

    @property
    def experience(self) -> Experience:
        """Return prompt and reply as they are trained; always the same object."""
        if self.made is None:
            self.made = self._experience()
        made = self.made
        self.info.setdefault(REPLY_NAMES, [[0, self.name]])
        if made.info is not self.info:  # a plain text's, which was made with the reply
            made.info, made.metrics, made.eid = self.info, self.metrics, self.eid
        return made

    def _experience(self) -> Experience:
        last, turn = self.conversation, self.turn
        assert last is not None
        assert turn is not None, "a conversation has messages"
        return Experience(
            tokens=_tensor(last),
            prompt_length=self.num_prompt_tokens,
            eid=self.eid,
            logprobs=list(last.sampled),  # type: ignore[arg-type]  # becomes a tensor
            temperature=last.temperature,
            truncate_status=self._truncate_status,
            info=self.info,
            metrics=self.metrics,
            prompt_text=last.prompt_text + reply_prefix(turn.messages),
            response_text=self.text,
            messages=[*map(dict, turn.messages), self.parsed.message()],
            tools=[*map(dict, turn.tools)] or None,
        )

    @property
    def _truncate_status(self) -> str | None:
        return "response_truncated" if self.outcome.finish_reason == "length" else None


def _tensor(conversation: Conversation) -> Tensor:
    import numpy as np
    import torch

    return torch.from_numpy(np.array(conversation.ids, dtype=np.int64))
