"""Ask once, score each answer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards import REWARD_FUNCTIONS
from trinity.common.rewards.calling import NOT_JUDGED, scores_of
from trinity.common.workflows.workflow import Workflow
from trinity.errors import ConfigError, JudgementCutError
from trinity.extend.kind import parameters_of

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.rewards import RewardFn
    from trinity.common.workflows.task import Task

__all__ = ["AsyncSimpleWorkflow", "SimpleWorkflow"]

_parameters_of = cache(parameters_of)  # each task asks for those of its reward function


class BaseSimpleWorkflow(Workflow):
    """What the blocking and the awaiting form share: the messages and the scores."""

    can_reset = True
    needs_reward_fn = True  # follows from default_reward_fn
    default_reward_fn: ClassVar[str | None] = None  # None: the task must name one
    default_system_prompt: ClassVar[str | None] = None  # goes with the default reward function

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "needs_reward_fn" not in cls.__dict__:
            is_scored_here = cls.reset is BaseSimpleWorkflow.reset
            cls.needs_reward_fn = is_scored_here and cls.default_reward_fn is None

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.reset(task)

    def reset(self, task: Task) -> None:
        """Take the prompt, the truth and the reward function of another task."""
        self.task = task
        self.format_args = task.format_args
        self.reward_fn_args = task.reward_fn_args
        self.raw_task = task.raw_task
        self.task_desc = task.task_desc
        self.truth = task.truth
        self.reply_prefix = task.format_args.reply_prefix
        self.system_prompt = self._system_prompt_of(task)
        self.reward_fn, self.reward_call_args = self._reward_fn_of(task)

    @property
    def rollout_args(self) -> dict[str, Any]:
        """Return how the model is asked: one sample for each run of this call."""
        given = self.task.rollout_args
        args = {
            "n": self.repeat_times,
            "temperature": given.temperature,
            "top_p": given.top_p,
            "top_k": given.top_k,
            "max_tokens": given.max_tokens,
            "enable_thinking": self.task.format_args.enable_thinking,
        }
        return {name: value for name, value in args.items() if value is not None}

    def format_messages(self) -> list[dict[str, str]]:
        """Return the system prompt, the question and, if there is one, how the answer begins."""
        messages = [{"role": "user", "content": str(self.task_desc)}]
        if self.system_prompt:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        if self.reply_prefix:
            messages.append({"role": "assistant", "content": self.reply_prefix})
        return messages

    def score(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with rewards; the parts of each reward become its metrics.

        One that cannot be judged in bounded time has none; its run is left out and counted.
        """
        for place, response in enumerate(responses):
            response.eid = replace(response.eid, run=self.run_id_base + place)
            try:
                scores = self.reward_scores(response)
            except JudgementCutError as error:
                response.info[NOT_JUDGED] = str(error)
                continue
            response.metrics = {**(response.metrics or {}), **scores}
            response.reward = sum(scores.values(), 0.0)
        return responses

    def reward_scores(self, response: Experience) -> dict[str, float]:
        """Return what the reward function says of a response."""
        offered = {
            "response": response.response_text or "",
            "truth": self.truth,
            "prompt": self.task_desc,
            "task": self.task,
            "messages": response.messages or self.format_messages(),
            "response_token": response.tokens[response.prompt_length :],
            "info": response.info,
        }
        return scores_of(self.reward_fn, offered=offered, options=self.reward_call_args)

    def _system_prompt_of(self, task: Task) -> str | None:
        key = task.format_args.system_prompt_key
        if key is not None and task.raw_task.get(key):
            return str(task.raw_task[key])
        if task.format_args.system_prompt is not None:
            return task.format_args.system_prompt
        return self.default_system_prompt if self._is_default(task.reward_fn) else None

    def _is_default(self, chosen: str | type[RewardFn] | None) -> bool:
        if chosen is None or isinstance(chosen, str):
            return chosen in {None, self.default_reward_fn}
        return self.default_reward_fn is not None and chosen is REWARD_FUNCTIONS.get(
            self.default_reward_fn
        )

    def _reward_fn_of(self, task: Task) -> tuple[RewardFn, dict[str, Any]]:
        chosen = task.reward_fn or self.default_reward_fn
        if chosen is None:
            raise ConfigError(
                f"{type(self).__name__} has no reward function of its own. Name one as "
                f"default_reward_fn_type of the taskset: {', '.join(REWARD_FUNCTIONS.names())}."
            )
        cls = REWARD_FUNCTIONS.get(chosen) if isinstance(chosen, str) else chosen
        build_args, call_args = _split_args(cls, task.reward_fn_args)
        return cls(**build_args), call_args


class SimpleWorkflow(BaseSimpleWorkflow):
    """One question, ``repeat_times`` answers of one call, each scored by the reward function."""

    can_repeat = True

    def run(self) -> list[Experience]:
        """Return one experience for each answer."""
        return self.score(self.model.chat(self.format_messages(), **self.rollout_args))


class AsyncSimpleWorkflow(BaseSimpleWorkflow):
    """The awaiting form; one answer a call."""

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer."""
        return self.score(await self.model.chat_async(self.format_messages(), **self.rollout_args))


def _split_args(cls: type[RewardFn], args: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of the constructor, and those of each call."""
    names = _parameters_of(cls)
    if names is None:
        return dict(args), {}
    at_build = {name: value for name, value in args.items() if name in names}
    return at_build, {name: value for name, value in args.items() if name not in names}
