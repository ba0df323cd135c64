"""What every reward function must hold.

``args`` holds the constructor's arguments; ``truth`` and ``prompt`` go to the call instead.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from trinity.common.rewards.calling import call_shape

from trinity_testing.builders import QUESTION, TRUTH, a_task
from trinity_testing.check import Check, CheckContext, Finding, Skipped

if TYPE_CHECKING:
    from trinity.extend.component import Component

__all__ = ["checks"]

NUM_TEXTS = 40
OTHER_TRUTH = "47"
TEXT = st.characters(exclude_categories=["Cs"])  # as by default, without a second's table of UTF-8
OF_THE_CALL = ("truth", "prompt")
RESPONSES = (
    "",
    "46",
    "<think>40 + 6 = 46</think> <answer>46</answer>",
    "\\boxed{46}",
    "I do not know.",
    "<answer></answer>",
    "\\boxed{",
    "<think><answer>47</think>",
)
ODD_TEXTS = (  # what int(), float(), eval() and a careless regular expression stumble over
    "\u00b2",
    "\u00bd",
    "\uff11\uff12",
    "\x00",
    "\u202e46",
    "1e400",
    "nan",
    "1/0",
    "-",
    "((((",
    "\\",
    "\U0001f600",
)
FRAMES = (
    "{}",
    "<answer>{}</answer>",
    "<think>{}</think> <answer>46</answer>",
    "\\boxed{{{}}}",
    "${}$",
)


class _FoundError(Exception):
    """Carries a finding out of hypothesis."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def is_finite(component: Component, context: CheckContext) -> Finding | None:
    """Find a text for which the reward is no plain finite number."""
    score = _scorer(component, context)
    odd = [frame.format(text) for text in ODD_TEXTS for frame in FRAMES[:4]]
    for response in (*RESPONSES, *odd):
        finding = _odd_reward(response, score(response))
        if finding:
            return finding

    with _no_traces():
        return _finding_for_any_text(score)


def is_pure(component: Component, context: CheckContext) -> Finding | None:
    """Find a reward that depends on what was scored before."""
    score = _scorer(component, context)
    first = [copy.deepcopy(score(response)) for response in RESPONSES]
    again = [score(response) for response in reversed(RESPONSES)][::-1]
    other = _scorer(component, context)
    if context.arguments(component).get("truth", TRUTH) == TRUTH:  # its form is known
        other(RESPONSES[1], truth=OTHER_TRUTH)
    fresh = [other(response) for response in RESPONSES]
    for response, one, two, three in zip(RESPONSES, first, again, fresh, strict=True):
        if repr(one) != repr(two):  # NaN equals itself here
            return Finding(f"{response!r} scores {one}, and {two} when scored again")
        if repr(one) != repr(three):
            return Finding(f"{response!r} scores {one}, and {three} by another instance")
    return None


def batch_equals_single(component: Component, context: CheckContext) -> Finding | None:
    """Find a function of lists that scores a text otherwise than alone."""
    function, call_args = _function(component, context)
    parameter = inspect.signature(function).parameters.get("response")
    annotation = str(parameter.annotation) if parameter else ""
    if "list" not in annotation and "Sequence" not in annotation:
        raise Skipped("its response is no list")
    num = len(RESPONSES)
    lists = {name: [value] * num for name, value in call_args.items()}
    together = function(response=list(RESPONSES), **lists)
    for place, response in enumerate(RESPONSES):
        alone = function(response=[response], **{name: [v] for name, v in call_args.items()})
        if _at(together, place) != _at(alone, 0):
            return Finding(
                f"{response!r} scores {_at(together, place)} in a list, {_at(alone, 0)} alone"
            )
    return None


def _function(component: Component, context: CheckContext) -> tuple[Any, dict[str, Any]]:
    given = context.arguments(component)
    function = context.build(component, without=OF_THE_CALL)
    return function, {
        "truth": copy.deepcopy(given.get("truth", TRUTH)),
        "prompt": given.get("prompt", QUESTION),
    }


def _scorer(component: Component, context: CheckContext) -> Callable[..., Any]:
    function, call_args = _function(component, context)
    offered = {"task": a_task(), "messages": [{"role": "user", "content": QUESTION}], **call_args}
    options = {k: v for k, v in context.arguments(component).items() if k not in OF_THE_CALL}
    shape = call_shape(type(function))

    def score(response: str, **changed: Any) -> Any:  # whatever it returns
        if shape is None:
            return function(response=response, **{**call_args, **changed})
        tokens = torch.tensor([7, 8])
        answer = {"response": response, "response_token": tokens, "info": {}, **changed}
        of_call = {name: options[name] for name in shape.named & set(options)}
        by_position, named = shape.arguments({**offered, **answer}, of_call)
        return function(*by_position, **named)

    return score


def _finding_for_any_text(score: Callable[[str], Any]) -> Finding | None:
    """Return a finding for the simplest of the texts that hypothesis thinks of."""

    @settings(
        max_examples=NUM_TEXTS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(frame=st.sampled_from(FRAMES), text=st.text(TEXT, max_size=60))
    def holds(frame: str, text: str) -> None:
        response = frame.format(text)
        finding = _odd_reward(response, score(response))
        if finding:
            raise _FoundError(finding)

    try:
        holds()
    except _FoundError as error:
        return error.finding
    return None


@functools.cache
def _know_all_texts() -> None:
    """Let hypothesis make its table of characters, once for the process and those it forks."""
    with _no_traces():
        _finding_for_any_text(lambda _: {"nothing": 0.0})


@contextmanager
def _no_traces() -> Iterator[None]:
    """Keep what hypothesis remembers out of the working directory."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


def _odd_reward(response: str, reward: object) -> Finding | None:
    """Return what is wrong with the reward of one response."""
    if not isinstance(reward, Mapping):
        return Finding(f"{response!r} scores a {type(reward).__name__}, not a mapping of floats")
    for name, value in reward.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return Finding(f"{response!r} scores {name!r} with a {type(value).__name__}")
        if not math.isfinite(value):
            return Finding(f"{response!r} scores {name!r} with {value}")
    return None


def _at(rewards: Any, place: int) -> Any:
    """Return one row of a list of rewards, or of a mapping of lists."""
    if isinstance(rewards, Mapping):
        return {name: values[place] for name, values in rewards.items()}
    return rewards[place]


KINDS = frozenset({"reward_fn"})
checks = (
    Check(
        id="reward_fn.finite",
        function=is_finite,
        remedy="Return {'name': float} for any text, the empty one too.",
        kinds=KINDS,
        prepare=_know_all_texts,
    ),
    Check(
        id="reward_fn.pure",
        function=is_pure,
        remedy="Keep no state between calls; draw nothing at random.",
        kinds=KINDS,
    ),
    Check(
        id="reward_fn.batch_equals_single",
        function=batch_equals_single,
        remedy="Score each text by itself.",
        kinds=KINDS,
    ),
)
