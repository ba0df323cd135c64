"""One run of a workflow on a scripted engine."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.ports import RunKey
from trinity.common.rewards import RewardFn
from trinity.errors import ConfigError, NotSupportedYetError

from trinity_testing.builders import a_task
from trinity_testing.check import CheckContext, HungError, NotBuilt, Skipped, in_words
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows import Task, Workflow
    from trinity.extend.component import Component

__all__ = ["HasTruth", "Trial", "difference", "experiences_of", "in_thread", "trial"]

LIMIT_S = 60.0
ANSWER = "<think>40 + 6 = 46</think> <answer>46</answer> \\boxed{46}"
OTHER_QUESTION, OTHER_TRUTH = "What is 30 + 9?", "39"
OF_THE_TRIAL = ("answers", "other_raw_task", "num_auxiliary_models")


class HasTruth(RewardFn):
    """1 if the truth stands in the response: what a workflow scores with that has no reward."""

    def __call__(self, **kwargs: Any) -> dict[str, float]:
        """Return ``has_truth``."""
        return {"has_truth": float(str(kwargs.get("truth")) in str(kwargs.get("response")))}


@dataclass(kw_only=True)
class Trial:
    """A workflow with all that it was given."""

    workflow: Workflow
    model: ModelWrapper
    engine: ScriptedEngine
    task: Task

    def run(self) -> list[Experience]:
        """Return what one run returns; raises what it raises."""
        return experiences_of(self.workflow)

    def reset(self, task: Task) -> None:
        """Give the instance another task, as the explorer does before it runs it again."""
        self.task = task
        self.model.begin_run(RunKey())
        self.engine.num_samples = 0  # it says its answers from the first on
        self.workflow.reset(task)


def trial(
    component: Component,
    context: CheckContext,
    *,
    is_other: bool = False,
    fails_at: int | None = None,
) -> Trial:
    """Return a new instance for a new task on a new engine; the same arguments, the same trial.

    Args:
        component: the workflow.
        context: its arguments are fields of the ``Task``; ``answers`` are the engine's,
            ``other_raw_task`` is the row of the second task, ``num_auxiliary_models`` how many
            further scripted models there are.
        is_other: take the second task.
        fails_at: the sample from which on the engine fails.
    """
    arguments = dict(context.arguments(component))
    own = {name: arguments.pop(name) for name in OF_THE_TRIAL if name in arguments}
    answers = own.get("answers", (ANSWER,))
    engine = ScriptedEngine(*answers, repeat=True, fails_at=fails_at)
    task = _task(component, arguments, other=own.get("other_raw_task"), is_other=is_other)
    models = [
        model_over(ScriptedEngine(*answers, repeat=True))
        for _ in range(own.get("num_auxiliary_models", 0))
    ]

    model = model_over(engine)

    def build() -> Workflow:
        cls = context.load(component)
        return cls(task=task, model=model, auxiliary_models=models)  # type: ignore[no-any-return]

    try:
        workflow = _with_some_reward(build, task)
    except Exception as error:
        key = f"{component.kind}/{component.name}"
        raise NotBuilt(
            f"its constructor {in_words(error)}; if its task lacks something, give it with "
            f"args={{{key!r}: {{...}}}}"
        ) from error
    return Trial(workflow=workflow, model=model, engine=engine, task=task)


def _with_some_reward(build: Callable[[], Workflow], task: Task) -> Workflow:
    """Return the workflow; one that refuses a task without a reward gets one."""
    try:
        return build()
    except ConfigError:
        if task.reward_fn is not None:
            raise
        task.reward_fn = HasTruth
        return build()


def experiences_of(workflow: Workflow) -> list[Experience]:
    """Return what one run of the workflow returns, called as the explorer calls it."""
    try:
        if workflow.is_async:
            return asyncio.run(workflow.run_async())
        return workflow.run()
    except NotSupportedYetError as error:
        raise Skipped(f"it uses what is not supported yet: {error}") from error


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Start the function in a thread of its own; return a function that waits for its result.

    Raises:
        HungError: from the returned function, where the thread goes on after a minute.
    """
    ended: list[tuple[bool, Any]] = []

    def call() -> None:
        try:
            ended.append((True, function()))
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            ended.append((False, error))

    thread = threading.Thread(target=call, name="conformance", daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(LIMIT_S)
        if not ended:
            raise HungError(LIMIT_S)
        is_value, value = ended[0]
        if not is_value:
            raise value
        return value

    return result


def difference(first: list[Experience], second: list[Experience]) -> str:
    """Return in words what two runs would teach differently; an empty string if nothing."""
    if len(first) != len(second):
        return f"{len(first)} experiences, and {len(second)}"
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        left, right = (_essence(each) for each in (one, other))
        for name, value in left.items():
            if repr(value) != repr(right[name]):  # NaN equals itself here
                return f"{name} of experience {place}: {value!s:.80}, and {right[name]!s:.80}"
    return ""


def _essence(experience: Experience) -> Mapping[str, Any]:
    return {
        "tokens": experience.tokens.tolist(),
        "prompt_length": experience.prompt_length,
        "reward": experience.reward,
        "action_mask": None if experience.action_mask is None else experience.action_mask.tolist(),
        "truncate_status": experience.truncate_status,
        "logprobs": None if experience.logprobs is None else experience.logprobs.tolist(),
    }


def _task(component: Component, arguments: dict[str, Any], *, other: Any, is_other: bool) -> Task:
    fields = {
        "workflow": component.name,
        "rollout_args": {"n": 1, "temperature": 1.0, "max_tokens": 256},
        **arguments,
    }
    if is_other and other is not None:
        fields["raw_task"] = other
    question = {"question": OTHER_QUESTION, "truth": OTHER_TRUTH} if is_other else {}
    return a_task(**question, **fields)
