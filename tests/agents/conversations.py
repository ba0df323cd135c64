"""Plays random conversations over an API and looks whether what is trained is what was sampled.

    python tests/agents/conversations.py [HOW_MANY]

Clients branch, edit old turns, drop reasoning, spell calls anew, change tools, options and the
temperature, go away before an answer arrives; several agents talk in turns; replies are malformed,
cut, or ended by a stop string. The engine's own record is the truth.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import templates
from trinity.common.models.chat import Chat, canonical_messages, message_key
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.chat_history import Prompt
from trinity.common.models.exchange import PendingCall
from trinity.common.models.model import ModelWrapper
from trinity.common.models.recorded_calls import RecordedCall
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, GenerationRequest, RunKey, WeightVersion
from trinity.errors import ModelError
from trinity_testing.checks.replies import TOOL

NUM_RUNS, NUM_STEPS = 500, 14
ENDS = {"llama3_1_like": ("<|eot_id|>",), "glm4_like": ("<|user|>", "<|observation|>")}
ENDS |= {"gpt_oss_like": ("<|return|>", "<|call|>", "<|end|>")}
SCRAPS = ("é ", "\n\n", " <b>", "go", "😀", "  ", "</", "12 34", "\t", "&", "{}", "trinity-reply")
CALLS = {
    "llama3_1_like": '{{"name": "look_up", "parameters": {}}}',
    "qwen3_5_like": "<tool_call>\n<function=look_up>\n<parameter=word>\n{}\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm4_like": "<tool_call>look_up\n<arg_key>word</arg_key>\n<arg_value>{}</arg_value>\n"
    "</tool_call>",
}
HERMES = '<tool_call>{{"name":"look_up","arguments":{}}}</tool_call>'


@dataclass
class Exchange:
    """One request of the engine, as it was asked and as it was answered."""

    request: GenerationRequest
    completions: list[Completion]


class RamblingEngine:
    """Says scraps, thoughts and calls, spelled letter by letter; no two tokens are as likely."""

    version = WeightVersion(0)

    def __init__(self, rng: random.Random, form: ChatFormat, name: str) -> None:
        self.rng = rng
        self.form = form
        self.name = name
        self.exchanges: dict[int, Exchange] = {}
        self.numbers = count(1)

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Answer at once."""
        completions = [self._sample(request) for _ in range(request.n)]
        self.exchanges[request.key.request] = Exchange(request, completions)
        future: Future[list[Completion]] = Future()
        future.set_result(completions)
        return future

    def _sample(self, request: GenerationRequest) -> Completion:
        end = self.rng.choice(ENDS.get(self.name, ("<|im_end|>",)))
        ids = [i for letter in self._text() for i in self.form.encode(letter)]
        ids.append(int(self.form.tokenizer.convert_tokens_to_ids(end)))
        is_cut = len(ids) > request.max_new_tokens
        stop = None if is_cut or self.rng.random() > 0.05 else "go"
        ids = ids[:-1] + self.form.encode("go") if stop else ids[: request.max_new_tokens]
        return Completion(
            token_ids=tuple(ids),
            logprobs=tuple(-next(self.numbers) / 1024 for _ in ids),  # float32 holds them exactly
            finish_reason="length" if is_cut else "stop",
            weight_version=self.version,
            stop_reason=stop,
        )

    def _text(self) -> str:
        scraps = "".join(self.rng.choices(SCRAPS, k=self.rng.randrange(4)))
        thought = self.rng.choice(("", "", f"<think>{scraps}hm\n</think>\n\n", "<think>"))
        word = self.rng.choice(("tea", "milk é"))
        form = CALLS.get(self.name, HERMES)
        arguments = json.dumps({"word": word, "count": 2}) if '"name"' in form else word
        call = form.format(arguments)
        said = self.rng.choice((scraps, scraps, call, scraps + call, call[:-3], call + call))
        return thought + said


@dataclass
class Agent:
    """A client with its own messages; ``last`` is the recorded reply that they hold as it was."""

    messages: list[Any]
    last: RecordedCall | None = None


@dataclass
class Play:
    """One run, and what happened in it."""

    seed: int
    name: str
    num_requests: int = 0
    kept: list[RecordedCall] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)


def play(seed: int) -> Play:
    """Play one run and check it.

    Raises:
        AssertionError: what was recorded is not what the engine said or was asked.
    """
    rng = random.Random(seed)
    path = rng.choice(sorted(templates.OWN.glob("*.jinja")))
    form = templates.chat_format(path.read_text("utf-8"))
    engine = RamblingEngine(rng, form, path.stem)
    settings = ModelSettings(
        max_model_len=10**6,
        max_response_tokens=400,
        enable_history=True,
        keep_reasoning=rng.random() < 0.3,
    )
    model = ModelWrapper(engine, form, settings)  # type: ignore[arg-type] -- asked only
    model.begin_run(RunKey(batch="1"))
    told = Play(seed, path.stem)
    agents = [Agent([said("user", rng)]) for _ in range(rng.randrange(1, 4))]
    for _ in range(NUM_STEPS):
        agent = rng.choice(agents)
        if rng.random() < 0.2:
            agents.append(Agent(list(agent.messages), agent.last))
        step(agent, model, engine, rng, told)
    check_trained(model, engine, told)
    return told


def step(
    agent: Agent, model: ModelWrapper, engine: RamblingEngine, rng: random.Random, told: Play
) -> None:
    """Let an agent ask once; sometimes it changes what it asks with."""
    is_edited = rng.random() < 0.15 and edit(agent, rng)
    tools = [TOOL] if rng.random() < 0.9 else []
    temperature = 1.0 if rng.random() < 0.95 else 0.5
    options = {} if rng.random() < 0.95 else {"enable_thinking": False}
    exchanges = model.exchanges
    try:
        asked = exchanges.prompt(
            agent.messages, tools=tools, options=options, temperature=temperature
        )
    except ModelError:  # as with two calls at once under a template that takes one
        agent.messages, agent.last = [said("user", rng)], None
        return
    told.num_requests += 1
    sampling = {"temperature": temperature, "n": rng.choice((1, 1, 2))}
    if rng.random() < 0.1:
        sampling["max_tokens"] = rng.randrange(1, 20)
    call = exchanges.send(asked, **sampling)
    replies = exchanges.replies(call, call.future.result())
    check_prompt(agent, call, replies[0], engine, is_edited=is_edited)
    told.words[str(asked.broken or ("goes on" if asked.continues else "begins"))] += 1
    if rng.random() < 0.1:
        return  # the client went away: nothing was served
    for reply in replies:
        exchanges.keep(reply)
    told.kept += replies
    agent.last = rng.choice(replies)
    agent.messages = [*agent.messages, *returned(agent.last, rng)]


def edit(agent: Agent, rng: random.Random) -> bool:
    """Change an old chat; return whether one was changed."""
    place = rng.randrange(len(agent.messages))
    if agent.messages[place]["role"] != "user":
        return False
    agent.messages = list(agent.messages)
    agent.messages[place] = said("user", rng)
    return True


def returned(reply: RecordedCall, rng: random.Random) -> list[Any]:
    """Return the reply as a client sends it back, and what follows it."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.parsed.content or None}
    if reply.parsed.reasoning and rng.random() < 0.5:
        message["reasoning_content"] = reply.parsed.reasoning
    if not reply.parsed.tool_calls:
        return [message, said("user", rng)]
    message["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(
                    dict(reversed(call.arguments.items())), indent=rng.choice((None, 2))
                ),
            },
        }
        for call in reply.parsed.tool_calls
    ]
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": scraps(rng)}
        for call in reply.parsed.tool_calls
    ]
    return [message, *results]


def said(role: str, rng: random.Random) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": scraps(rng)}


def scraps(rng: random.Random) -> str:
    """Return something to say, different each time."""
    return f"{''.join(rng.choices(SCRAPS, k=3))} {rng.getrandbits(32):x}"


def check_prompt(
    agent: Agent,
    call: PendingCall,
    reply: RecordedCall,
    engine: RamblingEngine,
    *,
    is_edited: bool,
) -> None:
    """Check that the engine was asked with recorded ids and what the template shows after them."""
    prompt = call.prompt
    assert engine.exchanges[call.request.key.request].request.prompt_token_ids == (prompt.token_ids)
    chat = replace(prompt.chat, messages=canonical_messages(agent.messages))
    assert prompt.text == chat.render(engine.form)
    if prompt.continues is None:
        assert prompt.token_ids == tuple(engine.form.encode(prompt.text))
    else:
        assert reply.experience.info["continues"] == prompt.continues.name
        check_rest(prompt, chat, engine.form)
    if agent.last is not None and not is_edited and prompt.broken is None:
        # Nothing is said to be broken, so the last recorded reply stands there by its ids; of two
        # replies that say the same it may be the other.
        assert prompt.continues is not None
        served = prompt.continues.chat.messages[-1]
        assert message_key(served) == message_key(agent.last.parsed.message())


def check_rest(prompt: Prompt, chat: Chat, form: ChatFormat) -> None:
    """Check that after the recorded ids comes what the template shows of the later messages."""
    before = prompt.continues
    assert before is not None
    assert prompt.token_ids[: len(before.ids)] == tuple(before.ids)
    ids = prompt.token_ids[len(before.ids) :]
    rest = form.decode(ids, skip_special_tokens=False)
    assert prompt.text.endswith(rest)
    assert prompt.text.removesuffix(rest).endswith(before.end_text)
    for place, message in enumerate(chat.messages):
        if message["role"] != "assistant":  # what others say is different each time
            name = message["content"].rpartition(" ")[2]
            assert (name in rest) == (place >= len(before.chat.messages))


def check_trained(model: ModelWrapper, engine: RamblingEngine, told: Play) -> None:
    """Check that what is trained is what was sampled and served, each token once."""
    experiences = model.extract_experience_from_history()
    assert len(experiences) == len(told.kept)
    trained: list[float] = []
    for experience in experiences:
        number, place = map(int, experience.info["request"].split("-"))
        exchange = engine.exchanges[number]
        completion = exchange.completions[place]
        ids = tuple(experience.tokens.tolist())
        assert ids == exchange.request.prompt_token_ids + completion.token_ids
        assert experience.action_mask is not None
        assert bool(experience.action_mask.all())
        assert experience.logprobs is not None
        assert tuple(experience.logprobs.tolist()) == completion.logprobs
        trained += completion.logprobs
    sampled = sum(len(reply.completion.token_ids) for reply in told.kept)
    assert len(trained) == sampled == len(set(trained))  # no two samples are as likely


def main(arguments: list[str]) -> int:
    """Play so many runs and say what happened in them."""
    plays = [play(seed) for seed in range(int(arguments[0]) if arguments else NUM_RUNS)]
    words: Counter[str] = sum((one.words for one in plays), Counter())
    served = [reply for one in plays for reply in one.kept]
    tokens = sum(len(reply.completion.token_ids) for reply in served)
    sys.stdout.write(
        f"{len(plays)} runs, {sum(one.num_requests for one in plays)} requests, {len(served)} "
        f"served replies: {tokens} tokens sampled and trained, none twice\n"
    )
    sys.stdout.write(", ".join(f"{word} {number}" for word, number in words.most_common()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
