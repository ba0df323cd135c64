"""What an engine is asked, and what it answers."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.ports.weights import WeightVersion


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class RunKey:
    """Which request this is: orders requests of a step and seeds their randomness.

    ``batch`` is the explore step (an evaluation uses ``"eval/<step>/<taskset>"``), ``attempt``
    counts retries from 1, and ``draw`` those after an error: what took too long is drawn again as
    it was, so that a slow machine changes no number.
    """

    batch: str = "0"
    task: int = 0
    run: int = 0
    request: int = 0
    attempt: int = 1
    draw: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """What a reply must match: a JSON schema, a regular expression, or a grammar in Lark's form.

    It decides where the reply may end: ``min_new_tokens`` does not hold beside it, not for
    ``stop`` either. An engine refuses a bad one with a ``ModelError``: when the request is made or,
    where it takes long to find out, by the request's future.
    """

    kind: Literal["json_schema", "regex", "lark"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One prompt to be continued ``n`` times. The prompt is prefilled once.

    A reply ends with the token that completes the first match of a ``stop`` string in the decoded
    text, special tokens included, or with one of ``stop_token_ids``; that token is kept. Neither
    ends a reply before ``min_new_tokens``. Engines that provide ``stop_strings`` take both fields,
    those that provide ``structure`` that one, those that provide ``penalties`` the last four;
    others are not asked, and the caller gets a ``ModelError`` that names the field.
    """

    prompt_token_ids: tuple[int, ...]
    key: RunKey = field(default_factory=RunKey)
    n: int = 1
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = -1  # -1: no limit
    min_p: float = 0.0  # least probability, as a part of the likeliest token's; 0: no limit
    max_new_tokens: int = 16
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    structure: Structure | None = None  # None: any text
    presence_penalty: float = 0.0  # taken off the logit of each token that the reply has
    frequency_penalty: float = 0.0  # likewise, as often as it has the token
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, what is added to its logit)
    seed: str = ""  # requests of a rollout with the same one draw the same
    adapter: str = ""  # name of the LoRA that the reply is computed with; "": none

    @property
    def drawn_by(self) -> RunKey:
        """Return what seeds samples: ``key``, with ``seed`` in place of the request's number."""
        seeded = replace(self.key, batch=f"{self.key.batch}/seed/{self.seed}", request=0)
        return seeded if self.seed else self.key


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled continuation.

    ``logprobs`` are natural log-probabilities of the sampled tokens under the full softmax at the
    sampling temperature, before min-p, top-k, top-p, penalties and structure (at temperature 0: at
    temperature 1). An engine that cannot tell them for a request refuses it with a ``ModelError``
    that names the setting.
    """

    token_ids: tuple[int, ...]  # the EOS token, if the model ended by one, is the last
    logprobs: tuple[float, ...]
    finish_reason: str  # "stop": as asked; "length": max_new_tokens or the context is used up
    weight_version: WeightVersion  # the oldest that a token was sampled with
    stop_reason: str | None = None  # the stop string that matched; None: something else ended it
    version_spans: tuple[tuple[int, int], ...] = ()  # (first token, version); (): all of one


def new_call_id() -> str:
    """Return an id of a tool call that nobody can guess: ``call_`` and 24 hex digits."""
    return "call_" + secrets.token_hex(12)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """One call of a tool, as the model wrote it."""

    name: str
    arguments: dict[str, Any]  # Any: as the tool's own schema says
    id: str = field(default_factory=new_call_id)

    def message(self) -> dict[str, Any]:
        """Return it as an entry of a message's ``tool_calls``; the arguments are an object."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedReply:
    """A reply as a message of the assistant."""

    content: str
    reasoning: str | None = None  # None: it holds none
    tool_calls: tuple[ToolCall, ...] = ()
    is_malformed: bool = False  # it begins a call that is none: all of it is content

    def message(self) -> dict[str, Any]:
        """Return it as chat templates read it, without the keys that it has nothing for."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.message() for call in self.tool_calls]
        return message


class ReplyParser(Protocol):
    """Reads a reply of the model; many threads use one. Made without arguments."""

    def parse(
        self,
        text: str,
        *,
        prompt: str,
        tools: Sequence[Mapping[str, Any]],  # Any: a tool's description, as chat templates take it
    ) -> ParsedReply:
        """Return what the reply says; it never raises, whatever the text.

        Args:
            text: of the reply with its special tokens, without the token that ended it.
            prompt: the text before it: it may have opened the model's thoughts.
            tools: that the model was told of; none: it calls none, and such a text is content.
        """
