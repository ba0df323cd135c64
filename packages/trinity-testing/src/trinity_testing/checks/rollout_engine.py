"""What every rollout engine must hold, on a tiny model whose weights are at hand.

``args`` are further constructor arguments. An engine with the word ``seeded_by_key`` in
``provides`` draws the tokens of a request from its key, whoever asks beside it.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

import torch
from trinity.common.ports import RunKey, WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity.extend import KINDS
from trinity.runtime.plugin_adapter import takes_keys

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks import engine_reference as reference
from trinity_testing.checks.background import Background
from trinity_testing.checks.engine_asking import LIMIT_S, TOLERANCE, answer, opened, request
from trinity_testing.checks.engine_reference import PROMPT, VOCAB
from trinity_testing.learning.lesson import ready

if TYPE_CHECKING:
    from trinity.common.ports import Completion
    from trinity.extend.component import Component

__all__ = ["checks"]


def answers_as_asked(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that answers with another number of samples, or tokens that are none."""
    with opened(component, context) as engine:
        for num in (1, 3):
            replies = answer(engine, n=num)
            if len(replies) != num:
                return Finding(f"asked for n = {num}, it gave {len(replies)}")
            for reply in replies:
                finding = _odd(reply, version=int(engine.version))
                if finding:
                    return Finding(finding)
        replies = answer(engine, n=4, max_new_tokens=6, ignore_eos=True)
        if len({reply.token_ids for reply in replies}) == 1:
            return Finding("at temperature 1, the four samples of a request are the same")
    return None


def _odd(reply: Completion, *, version: int) -> str:
    outside = [t for t in reply.token_ids if not isinstance(t, int) or not 0 <= t < VOCAB]
    if outside or not reply.token_ids:
        return f"of a vocabulary of {VOCAB} it gave {outside[:3] or 'nothing'}"
    if len(reply.logprobs) != len(reply.token_ids):
        return f"{len(reply.token_ids)} tokens have {len(reply.logprobs)} log-probabilities"
    if reply.finish_reason not in {"stop", "length"}:
        return f"finish_reason is {reply.finish_reason!r}, neither 'stop' nor 'length'"
    if reply.weight_version != version:
        return f"it has version {version}, and a completion says {reply.weight_version}"
    return ""


def keeps_to_the_limit(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that gives more tokens than asked for, or stops before them unsaid."""
    with opened(component, context) as engine:
        for limit in (1, 5):
            for reply in answer(engine, n=2, max_new_tokens=limit):
                num = len(reply.token_ids)
                if num > limit or (num < limit and reply.finish_reason == "length"):
                    return Finding(f"max_new_tokens is {limit}, and {num} tokens are a 'length'")
                if num == limit and reply.finish_reason == "stop" and not _is_end(reply):
                    return Finding(f"{num} of {limit} tokens, none ends a text, are a 'stop'")
    return None


def tells_true_logprobs(component: Component, context: CheckContext) -> Finding | None:
    """Find log-probabilities that are not those of the full softmax at the temperature."""
    with opened(component, context) as engine:
        for settings in ({"temperature": 1.0}, {"temperature": 0.7, "top_k": 5, "top_p": 0.8}):
            try:
                (reply,) = answer(engine, **settings)
            except ModelError:  # it cannot, and says so
                if "top_k" in settings:
                    continue
                raise
            wanted = reference.logprobs(reference.model(), reply.token_ids, settings["temperature"])
            given = torch.tensor(reply.logprobs)
            if bool((given > 0).any()):
                return Finding(f"a log-probability is {float(given.max()):.3g}, above 0")
            difference = float((given - wanted).abs().max())
            if not difference <= TOLERANCE:
                return Finding(f"at {settings}, they differ by {difference:.2g} from the model's")
    return None


def is_greedy_at_zero(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that does not take the likeliest token at temperature 0."""
    with opened(component, context) as engine:
        (reply,) = answer(engine, temperature=0.0, max_new_tokens=6)
    wanted = reference.greedy(reference.model(), len(reply.token_ids))
    if list(reply.token_ids) != wanted:
        return Finding(f"at temperature 0 it gave {list(reply.token_ids)}, the model {wanted}")
    return None


def ends_where_it_is_told(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that claims stop_strings, and ends elsewhere or drops what ended it."""
    if "stop_strings" not in KINDS["rollout_engine"].abilities_by_class(component):
        raise Skipped("it does not claim stop_strings")
    tokenizer = reference.tokenizer()
    with opened(component, context) as engine:
        ids = answer(engine, temperature=0.0, ignore_eos=True)[0].token_ids
        texts = [tokenizer.decode(ids[:end], skip_special_tokens=False) for end in range(13)]
        stop = next(text for end in range(5, 13) if (text := texts[end][len(texts[3]) :]))
        wanted = {
            "stop_token_ids": ((ids[5],), ids.index(ids[5]) + 1),
            "stop": ((stop,), next(end for end in range(13) if stop in texts[end])),
        }
        for field, (given, end) in wanted.items():
            told = {"temperature": 0.0, "ignore_eos": True, field: given}
            (reply,) = answer(engine, **told)
            if reply.token_ids != ids[:end] or reply.finish_reason != "stop":
                return Finding(
                    f"with {field} {given} it gave {len(reply.token_ids)} tokens and "
                    f"{reply.finish_reason!r}; {end} are up to the match, which is kept"
                )
    return None


def scores_as_the_model(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that claims scores, and tells others than the model's log-probabilities."""
    if "scores" not in KINDS["rollout_engine"].abilities_by_class(component):
        raise Skipped("it does not claim scores")
    text = (7, 30, 8, 31, 9)
    with opened(component, context) as engine:
        given = engine.score((*PROMPT, *text), 1.0).result(LIMIT_S)
    wanted = reference.logprobs(reference.model(), text, 1.0)
    if len(given) != len(PROMPT) + len(text) - 1:
        return Finding(f"{len(PROMPT) + len(text)} tokens have {len(given)} scores, not one less")
    difference = float((torch.tensor(given[len(PROMPT) - 1 :]) - wanted).abs().max())
    if not difference <= TOLERANCE:
        return Finding(f"they differ by {difference:.2g} from the model's log-probabilities")
    return None


def draws_by_the_key(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that claims to be seeded by the key, and draws by something else too."""
    if "seeded_by_key" not in component.spec.provides:
        raise Skipped("it does not claim seeded_by_key")
    keys = [RunKey(batch="1", task=task) for task in range(3)]
    with opened(component, context) as engine:
        first = [answer(engine, key=key)[0].token_ids for key in keys]
    with opened(component, context) as engine:
        again = [answer(engine, key=key)[0].token_ids for key in reversed(keys)][::-1]
    if first != again:
        return Finding("the same keys in another order gave other tokens")
    return Finding("other keys gave the same tokens") if len(set(first)) == 1 else None


def takes_new_weights(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that goes on with old weights, or with the old version, after new ones."""
    other = reference.model(seed=1)
    with opened(component, context) as engine:
        tensors = {name: tensor.detach() for name, tensor in other.named_parameters()}
        engine.load_weights(WeightSnapshot(version=WeightVersion(3), tensors=tensors))
        (reply,) = answer(engine)
        if (int(engine.version), int(reply.weight_version)) != (3, 3):
            return Finding(f"version 3 was loaded; it says {engine.version}")
    wanted = reference.logprobs(other, reply.token_ids, 1.0)
    difference = float((torch.tensor(reply.logprobs) - wanted).abs().max())
    if not difference <= TOLERANCE:
        return Finding(f"it samples {difference:.2g} away from the weights that it loaded")
    return None


def fails_when_closed(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that leaves requests without an answer, or answers, after it was closed."""
    with opened(component, context) as engine:
        engine.run_began(RunKey(task=1))  # it never asks: a batch may wait for it
        engine.run_began(RunKey(task=2))
        waiting = engine.submit(request(key=RunKey(task=2)))
        engine.close()
        engine.close()
        if (found := _not_failed(waiting, may_succeed=True)) is not None:
            return found
        try:
            late = engine.submit(request())
        except ModelError:
            return None
        return _not_failed(late, may_succeed=False)


def _not_failed(future: Any, *, may_succeed: bool) -> Finding | None:
    try:
        future.result(LIMIT_S)
    except (ModelError, CancelledError):
        return None
    except FutureTimeoutError:
        return Finding("a request that waited when it was closed has no answer at all")
    except Exception as error:  # noqa: BLE001 -- of the part under test
        return Finding(f"closed, it fails a request by {type(error).__name__}, not a ModelError")
    return None if may_succeed else Finding("it was closed, and it answers")


def lives_on_after_a_cancel(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that does not answer any more after somebody gave a request up."""
    with opened(component, context) as engine:
        engine.run_began(RunKey(task=1))
        engine.run_began(RunKey(task=2))
        engine.submit(request(key=RunKey(task=1), max_new_tokens=40)).cancel()
        engine.run_ended(RunKey(task=1))
        try:
            engine.submit(request(key=RunKey(task=2))).result(LIMIT_S)
        except FutureTimeoutError:
            return Finding(f"after a cancel(), the next request has no answer in {LIMIT_S:.0f} s")
    return None


def serves_many_threads(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that mixes up who asked what."""
    prompts = [(5 + number, 9, 17 + number, 4) for number in range(4)]
    with opened(component, context) as engine:
        alone = [answer(engine, prompt_token_ids=p, temperature=0.0)[0].token_ids for p in prompts]
        start = threading.Barrier(len(prompts))

        def ask(prompt: tuple[int, ...]) -> list[tuple[int, ...]]:
            start.wait(LIMIT_S)
            replies = [answer(engine, prompt_token_ids=prompt, temperature=0.0) for _ in range(3)]
            return [reply[0].token_ids for reply in replies]

        callers = [Background(lambda prompt=prompt: ask(prompt)) for prompt in prompts]
        for caller, wanted in zip(callers, alone, strict=True):
            if not caller.wait(LIMIT_S) or caller.error:
                return Finding(f"asked by 4 threads at once, it failed: {caller.error!r}")
            if caller.value != [wanted] * 3:
                return Finding("asked by 4 threads at once, it gives a prompt another's answer")
    return None


def knows_whose_run_it_is(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that is not told which run began and ended: it can only count them."""
    if takes_keys(context.load(component)):
        return None
    return Finding("run_began() and run_ended() take no key")


def _is_end(reply: Completion) -> bool:
    return reply.token_ids[-1] in reference.model().generation_config.eos_token_id


_KINDS = frozenset({"rollout_engine"})
checks = (
    Check(
        id="rollout_engine.completions",
        function=answers_as_asked,
        remedy="Return n completions, each with the ids that were sampled, a log-probability for "
        "each, 'stop' or 'length', and the version of the weights.",
        kinds=_KINDS,
        prepare=ready,
    ),
    Check(
        id="rollout_engine.max_new_tokens",
        function=keeps_to_the_limit,
        remedy="Stop after max_new_tokens, with 'length'; 'stop' ends by a token that ends texts.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.logprobs",
        function=tells_true_logprobs,
        remedy="Take log_softmax(logits / temperature) before top-k and top-p.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.greedy",
        function=is_greedy_at_zero,
        remedy="Take argmax of the logits where temperature is 0.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.stop",
        function=ends_where_it_is_told,
        remedy="End with the token that completes the first match in the decoded text, and keep "
        "it; or do not provide stop_strings.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.scores",
        function=scores_as_the_model,
        remedy="Give log_softmax of the model for each token but the first, or do not provide "
        "scores.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.seeded",
        function=draws_by_the_key,
        remedy="Seed a generator by seed, key and sample, or do not provide seeded_by_key.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.load_weights",
        function=takes_new_weights,
        remedy="Copy every tensor and take the snapshot's version, before the next answer.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.close",
        function=fails_when_closed,
        remedy="In close(), fail what waits with a ModelError, and what comes later too.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.cancel",
        function=lives_on_after_a_cancel,
        remedy="Ask set_running_or_notify_cancel() before you answer a future.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.threads",
        function=serves_many_threads,
        remedy="Keep what belongs to a request with the request; hold a lock around the rest.",
        kinds=_KINDS,
    ),
    Check(
        id="rollout_engine.run_keys",
        function=knows_whose_run_it_is,
        remedy="Let both take the key; an engine that does not wait for runs may ignore it.",
        severity="warning",
        kinds=_KINDS,
    ),
)
