"""One use of a component of each kind, as the runtime uses it, and what it may not change.

``trinity_testing.checks.conduct`` looks at what such a use does beside its result.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.algorithm.advantage_fn import apply_advantage

from trinity_testing.builders import QUESTION, TRUTH, an_experience
from trinity_testing.check import NotBuilt, Skipped, in_words
from trinity_testing.checks.advantage_fn import a_full_batch
from trinity_testing.checks.loss_inputs import arguments, field_names, loss_inputs
from trinity_testing.checks.replies import REPLIES, TOOL
from trinity_testing.checks.trial import experiences_of, trial
from trinity_testing.sources import ListSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.extend.component import Component

    from trinity_testing.check import CheckContext

__all__ = ["EXERCISES", "Exercise", "a_selector", "exercise"]

BATCH_SIZE = 4
NUM_ROWS = 8
MAX_STEPS = 40
ANSWER = "<think>40 + 6 = 46</think> <answer>46</answer> \\boxed{46}"
SAMPLED = ("tokens", "prompt_length", "logprobs", "eid")  # what nobody may change after sampling
JUDGED = (*SAMPLED, "reward", "token_level_reward", "action_mask", "truncate_status")


@dataclass(kw_only=True)
class Exercise:
    """One use of a component.

    Attributes:
        call: uses it; called again, it uses the same instance on equal inputs.
        given: returns what it was given and may not change, by name.
        is_repeatable: a second call must give what the first gave.
    """

    call: Callable[[], Any]
    given: Callable[[], Mapping[str, Any]] = field(default=dict)
    is_repeatable: bool = False


def exercise(component: Component, context: CheckContext) -> Exercise:
    """Return a use of a new instance of the component.

    Raises:
        Skipped: it cannot be built, or the kit cannot make what it reads.
    """
    return EXERCISES[component.kind](component, context)


def _workflow(component: Component, context: CheckContext) -> Exercise:
    attempt = trial(component, context)
    task, model = attempt.task, attempt.model

    def call() -> list[Experience]:
        try:
            return experiences_of(attempt.workflow)
        finally:
            attempt.workflow.close()

    def given() -> dict[str, Any]:
        return {
            "the task's raw_task": task.raw_task,
            "the task's workflow_args": task.workflow_args,
            "the task's reward_fn_args": task.reward_fn_args,
            "the task's format_args": task.format_args,
            "the task's rollout_args": task.rollout_args,
            "the model's address": id(model),
        }

    return Exercise(call=call, given=given)


def _reward_fn(component: Component, context: CheckContext) -> Exercise:
    arguments_ = context.arguments(component)
    function = context.build(component, without=("truth", "prompt"))
    inputs = {
        "response": ANSWER,
        "truth": copy.deepcopy(arguments_.get("truth", TRUTH)),
        "prompt": copy.deepcopy(arguments_.get("prompt", QUESTION)),
        "messages": [{"role": "user", "content": QUESTION}],
        "raw_task": {"question": QUESTION, "answer": TRUTH},
    }
    info = {"model_version": 0}  # it may add to it, as published ones do

    def given() -> dict[str, Any]:
        return {**inputs, "info's model_version": info.get("model_version")}

    return Exercise(call=lambda: function(**inputs, info=info), given=given)


def _advantage_fn(component: Component, context: CheckContext) -> Exercise:
    function = context.build(component)
    batches = [a_full_batch()]

    def call() -> Any:
        try:
            batch, _ = apply_advantage(function, batches[-1])
        except KeyError as error:
            if "no field named" in str(error):
                raise Skipped(f"the kit cannot make a field that it reads: {error}") from error
            raise
        batches.append(a_full_batch())
        return {
            row.eid.uid: batch["advantages"][place] for place, row in enumerate(batch.experiences)
        }

    first = batches[0]
    tensors = {name: value for name, value in first.batch.items() if name not in WRITTEN}
    given = list(first.experiences)
    return Exercise(
        call=call,
        given=lambda: {**tensors, "experiences": [_fields(row, JUDGED) for row in given]},
        is_repeatable=True,
    )


def _loss(component: Component, context: CheckContext) -> Exercise:
    function = context.build(component)
    inputs = loss_inputs()
    names = field_names(function)
    return Exercise(
        call=lambda: function(**arguments(inputs, names, whole=inputs)),
        given=lambda: inputs,
        is_repeatable=True,
    )


def _kl_fn(component: Component, context: CheckContext) -> Exercise:
    function = context.build(component)
    inputs = loss_inputs()
    given = {name: inputs[name] for name in ("logprob", "ref_logprob", "old_logprob")}
    mask_BR = inputs["action_mask"]
    return Exercise(
        call=lambda: (
            function.calculate_kl(**given),
            function.calculate_kl_loss(response_mask=mask_BR, **given),
        ),
        given=lambda: {**given, "response_mask": mask_BR},
        is_repeatable=True,
    )


def _sample_strategy(component: Component, context: CheckContext) -> Exercise:
    rows = [_numbered(number) for number in range(NUM_ROWS)]
    experts = [_numbered(number, batch="sft") for number in range(MAX_STEPS * BATCH_SIZE)]
    strategy = context.build(component)
    strategy.bind(
        {"experience_buffer": ListSource(rows), "sft_dataset": ListSource(experts)},
        train_batch_size=BATCH_SIZE,
        read_timeout_s=0.5,
    )

    def call() -> int:
        for step in range(1, MAX_STEPS):
            try:
                strategy.sample(step)
            except StopIteration:
                return step
        return MAX_STEPS

    return Exercise(
        call=call, given=lambda: {"experiences": [_fields(row, JUDGED) for row in rows]}
    )


def _experience_operator(component: Component, context: CheckContext) -> Exercise:
    operator = context.build(component)
    rows = [_numbered(number) for number in range(NUM_ROWS)]
    return Exercise(
        call=lambda: operator.process(list(rows)),
        given=lambda: {"experiences": [_fields(row, SAMPLED) for row in rows]},
    )


def _task_selector(component: Component, context: CheckContext) -> Exercise:
    features = _features(NUM_ROWS)
    selector = a_selector(component, context, num_rows=NUM_ROWS, features=features)
    return Exercise(
        call=lambda: selector.get_indices(NUM_ROWS // 2), given=lambda: {"features": features}
    )


def _priority_fn(component: Component, context: CheckContext) -> Exercise:
    function = context.build(component)
    rows = [_numbered(number) for number in range(2)]
    return Exercise(
        call=lambda: function(rows),
        given=lambda: {"experiences": [_fields(row, (*JUDGED, "info")) for row in rows]},
    )


def a_selector(
    component: Component,
    context: CheckContext,
    *,
    num_rows: int,
    features: Mapping[str, Sequence[float]] | None = None,
) -> Any:
    """Return a selector over so many rows, with a column of features if it asks for them."""
    cls = context.load(component)
    columns = _features(num_rows) if features is None else features
    own = {"features": columns} if "features" in inspect.signature(cls).parameters else {}
    try:
        return cls(num_rows, **{**own, **context.arguments(component)})
    except Exception as error:
        raise NotBuilt(f"its constructor {in_words(error)}") from error


def _features(num_rows: int) -> dict[str, list[float]]:
    """Return pass rates of a weak and of a strong model."""
    weak = [number / (2 * num_rows) for number in range(num_rows)]
    return {"weak": weak, "strong": [0.5 + rate for rate in weak]}


def _numbered(number: int, *, batch: str = "own") -> Experience:
    return an_experience(
        batch=batch,
        task=number // 2,
        run=number % 2,
        reward=float(number % 2),
        info={"model_version": number // 2},
        truncate_status="response_truncated" if number == 1 else None,
    )


def _fields(row: Experience, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _reply_parser(component: Component, context: CheckContext) -> Exercise:
    parser, tools = context.build(component), [copy.deepcopy(TOOL)]
    return Exercise(
        call=lambda: [parser.parse(text, prompt="", tools=tools) for text in REPLIES],
        given=lambda: {"tools": tools},
    )


WRITTEN = frozenset({"advantages", "returns", "action_mask"})  # by an advantage function
EXERCISES: Mapping[str, Callable[[Component, CheckContext], Exercise]] = {
    "workflow": _workflow,
    "reward_fn": _reward_fn,
    "advantage_fn": _advantage_fn,
    "policy_loss_fn": _loss,
    "entropy_loss_fn": _loss,
    "kl_fn": _kl_fn,
    "sample_strategy": _sample_strategy,
    "experience_operator": _experience_operator,
    "task_selector": _task_selector,
    "priority_fn": _priority_fn,
    "reply_parser": _reply_parser,
}
