"""CPU milliseconds of a chat's turn, the engine apart: what going on by recorded ids costs.

    python benchmarks/chat_turns.py [--turns 8 128] [--repeats 5]

The engine answers at once with the same tokens. A turn is one call of ``model.chat``: template,
search for the recorded conversation, tokenising the rest, the experience; the last four turns are
measured. The last column is the same chat over ``model.exchanges``, as an endpoint makes it, with a
tool call in each second turn, spelled as the chat template does not.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import Future
from statistics import median
from typing import Any

from trinity.common.models.chat import Chat
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, GenerationRequest, WeightVersion
from trinity_testing.tiny import make_tiny_tokenizer

TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] -}}"
    "{%- for call in message.tool_calls -%}"
    "{{- '\n<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' -}}{%- endfor -%}"
    "{{- '<|im_end|>' + '\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
CALL = 'I look it up.<tool_call>{"name":"look_up","arguments":{"word":"tea","count":2}}</tool_call>'
WORDS = "You see a table, two chairs and an open door north of the kitchen, where it is warm."


class InstantEngine:
    """Says the same text each time."""

    version = WeightVersion(0)

    def __init__(self, form: ChatFormat) -> None:
        end = form.tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.texts = [(*form.encode(text), end) for text in (WORDS, CALL)]
        self.calls = 0
        self.has_calls = False

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Return a done future."""
        ids = self.texts[self.calls % 2 if self.has_calls else 0]
        self.calls += 1
        future: Future[list[Completion]] = Future()
        reply = Completion(
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            finish_reason="stop",
            weight_version=self.version,
        )
        future.set_result([reply])
        return future


def chat_ms(model: ModelWrapper, turns: int) -> float:
    """Return the CPU milliseconds of the last turn of a chat of so many."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": WORDS}]
    began = 0.0
    for turn in range(turns):
        if turn >= turns - 4:
            began = began or time.process_time()
        [experience] = model.chat(list(messages))
        messages += [{"role": "assistant", "content": experience.response_text}]
        messages += [{"role": "user", "content": f"{WORDS} {turn}"}]
    return (time.process_time() - began) / min(turns, 4) * 1e3


def search_ms(model: ModelWrapper, turns: int) -> float:
    """Return what of a turn is the search for the recorded conversation, after so many."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": WORDS}]
    for turn in range(turns):
        [experience] = model.chat(list(messages))
        messages += [{"role": "assistant", "content": experience.response_text}]
        messages += [{"role": "user", "content": f"{WORDS} {turn}"}]
    asked = Chat(messages=tuple(json.loads(json.dumps(messages))))
    began = time.process_time()
    for _ in range(20):
        assert model._history.longest(asked) is not None, "it is found"
    return (time.process_time() - began) / 20 * 1e3


def exchange_ms(model: ModelWrapper, turns: int) -> float:
    """Return the same over exchanges; messages come as JSON, as a client sends them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": WORDS}]
    began, exchanges = 0.0, model.exchanges
    for turn in range(turns):
        body = json.loads(json.dumps(messages))
        if turn >= turns - 4:
            began = began or time.process_time()
        call = exchanges.send(exchanges.prompt(body, tools=[TOOL]))
        [reply] = exchanges.replies(call, call.future.result())
        exchanges.keep(reply)
        assert (turn == 0) == (call.prompt.continues is None), "it goes on by recorded ids"
        message = reply.parsed.message()
        messages.append(message)
        calls = message.get("tool_calls")
        follows = {"role": "tool", "tool_call_id": calls[0]["id"]} if calls else {"role": "user"}
        messages.append({**follows, "content": f"{WORDS} {turn}"})
    return (time.process_time() - began) / min(turns, 4) * 1e3


def main() -> None:
    """Print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", default=[8, 128])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    form = ChatFormat(make_tiny_tokenizer(chat_template=TEMPLATE))
    settings = ModelSettings(max_model_len=10**7, max_response_tokens=10**4)
    for turns in given.turns:
        engine = InstantEngine(form)
        plain, tools = [], []
        for _ in range(given.repeats):
            engine.has_calls = False
            plain.append(chat_ms(ModelWrapper(engine, form, settings), turns))  # type: ignore[arg-type]
            if hasattr(ModelWrapper, "exchanges"):
                engine.has_calls = True
                tools.append(exchange_ms(ModelWrapper(engine, form, settings), turns))  # type: ignore[arg-type]
        line = f"{turns} turns: model.chat {median(plain):.2f} CPU ms a turn"
        engine.has_calls = False
        found = search_ms(ModelWrapper(engine, form, settings), turns)  # type: ignore[arg-type]
        line += f", of it {found:.3f} to find the recorded conversation"
        print(line + (f", exchanges {median(tools):.2f}" if tools else ""))


if __name__ == "__main__":
    main()
