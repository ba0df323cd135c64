"""Answers whose thoughts have a budget of tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.models.settings import Sampling
from trinity.common.workflows import SimpleWorkflow
from trinity.errors import BadTaskError, ConfigError, unknown_name

from trinity_compat_rft.budget import BudgetedReply, ThinkingBudget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.exchange import Exchanges, PendingCall
    from trinity.common.ports import Completion
    from trinity.common.workflows import Task

__all__ = ["ThinkingBudgetWorkflow"]

_ARGUMENTS = ("thinking_token_budget", "reasoning_start_str", "reasoning_end_str")


def _opened(question: str) -> list[dict[str, str]]:
    """Return messages whose last one opens the reply's thoughts."""
    return [{"role": "user", "content": question}, {"role": "assistant", "content": "<think>"}]


class ThinkingBudgetWorkflow(SimpleWorkflow):
    """Asks the row's ``messages``; a model that thinks too long is made to end its thoughts.

    The forced tokens are masked, and no others: an end of thoughts that the model wrote itself is
    trained on. A reply that does not begin with thoughts has no budget. The metric
    ``thinking/forced`` is 1 where an end was forced.

    Arguments (``workflow_args``):
        thinking_token_budget: tokens of thoughts, 0 or more; required.
        reasoning_start_str: what begins them, in the prompt or the reply; ``<think>``.
        reasoning_end_str: what ends them; ``</think>``.
    """

    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"messages": _opened("40 + 6?"), "answer": "46"},
        "other_raw_task": {"messages": _opened("2 + 2?"), "answer": "4"},
        "format_args": {"prompt_key": "messages", "response_key": "answer"},
        "workflow_args": {"thinking_token_budget": 4},
        "reward_fn": "accuracy_reward",
        "answers": ("long thoughts", "46"),
    }

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that no run could use.

        Raises:
            ConfigError: one is unknown, missing, or not what it must be.
        """
        for name in arguments:
            if name not in _ARGUMENTS:
                raise ConfigError(
                    unknown_name("argument of thinking_budget_workflow", str(name), _ARGUMENTS)
                )
        _settings(arguments)

    def reset(self, task: Task) -> None:
        """Take another row, its reward function and its budget.

        Raises:
            BadTaskError: the row has no list of messages.
            ConfigError: an argument is not what it must be.
        """
        if not isinstance(task.raw_task.get("messages"), list):
            raise BadTaskError(
                f"{task.origin}: the column 'messages' is no list of messages. Give each row one, "
                f"with role and content, and set format.prompt_key: messages."
            )
        super().reset(task)
        num_tokens, start, end = _settings(task.workflow_args)
        self.budget = ThinkingBudget(
            num_tokens=num_tokens, start=start, end=end, chat_format=self.model.chat_format
        )

    def format_messages(self) -> list[dict[str, Any]]:
        """Return the row's messages as they are."""
        return list(self.raw_task["messages"])

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer.

        Raises:
            ConfigError: there is no room for a token beside the forced ones.
        """
        exchanges, sampling = self.model.exchanges, self.rollout_args
        num, most = sampling.pop("n"), sampling.pop("max_tokens", None)
        thinking = {"enable_thinking": sampling.pop("enable_thinking", None)}
        heat = sampling.get("temperature", exchanges.settings.temperature)
        prompt = exchanges.prompt(self.format_messages(), options=thinking, temperature=heat)
        settings = exchanges.settings
        most = min(
            most or settings.max_response_tokens or settings.max_model_len,
            settings.max_model_len - len(prompt.token_ids),
        )
        begun = BudgetedReply(prompt=prompt, budget=self.budget, most=most).within_budget()
        if most > 0 and not begun.num_wanted:
            raise ConfigError(
                f"max_tokens {most} leaves no token beside {self.budget.end!r}. Raise it."
            )
        first = exchanges.send(begun.asked, n=num, **self._limits(begun), **sampling)
        replies = [begun.with_piece(piece) for piece in await self._answered(first)]
        tasks = [
            asyncio.ensure_future(self._finished(reply, exchanges, sampling)) for reply in replies
        ]
        try:
            whole = await asyncio.gather(*tasks)
        finally:
            for one in tasks:
                one.cancel()
        exchanges.run.heard(version for reply in whole for _, version in reply.spans)
        messages = self.format_messages()
        return self.score([one.experience(temperature=heat, messages=messages) for one in whole])

    async def _finished(
        self, reply: BudgetedReply, exchanges: Exchanges, sampling: dict[str, Any]
    ) -> BudgetedReply:
        while reply.num_wanted:
            arguments = Sampling.of({**sampling, **self._limits(reply)})
            (piece,) = await self._answered(exchanges.submit(reply.asked, arguments))
            if not piece.token_ids:
                break  # the engine has no room for more
            reply = reply.with_piece(piece)
        return reply

    def _limits(self, reply: BudgetedReply) -> dict[str, int]:
        """Return how long the next piece is."""
        least = self.model.settings.min_response_tokens - len(reply.token_ids)
        wanted = reply.num_wanted
        return {"max_tokens": wanted, "min_tokens": min(max(least, 0), wanted)}

    async def _answered(self, call: PendingCall) -> list[Completion]:
        limit = self.model.settings.request_timeout_s
        try:
            return await asyncio.wait_for(asyncio.wrap_future(call.future), limit)
        except TimeoutError as error:
            raise self.model.no_answer() from error


def _settings(arguments: Mapping[str, Any]) -> tuple[int, str, str]:
    """Return the budget, and what begins and ends the thoughts."""
    budget = arguments.get("thinking_token_budget")
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        raise ConfigError(
            f"workflow_args.thinking_token_budget is {budget!r}. Give how many tokens the model "
            f"may think, a whole number of 0 or more."
        )
    marks = (
        arguments.get("reasoning_start_str", "<think>"),
        arguments.get("reasoning_end_str", "</think>"),
    )
    if not all(isinstance(mark, str) and mark.strip() for mark in marks):
        raise ConfigError(
            f"workflow_args.reasoning_start_str and reasoning_end_str are {marks!r}. Give texts "
            f"that are not empty, such as <think> and </think>."
        )
    return budget, *marks
