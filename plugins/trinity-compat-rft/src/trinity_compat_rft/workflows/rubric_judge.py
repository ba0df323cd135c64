"""Answers that a judge rates by the rubric of the row."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import SimpleWorkflow
from trinity.errors import ConfigError

from trinity_compat_rft.judging import WithJudge, rating

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openai import OpenAI
    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = ["RubricJudgeWorkflow", "RubricJudgeWorkflowWithAPI", "missing_judge"]

SYSTEM_PROMPT = (
    "You answer the questions of a user. Think the question through first, then give the answer."
)
JUDGE_PROMPT = """You rate answers. You get a prompt, a response and a list of rubrics, each with
its weight, and give the response one mark from 1 to 10: how well does it satisfy the rubrics, all
in all? The more rubrics it violates, and the heavier they weigh, the lower the mark.
Begin your reply with a JSON object between "```json" and "```" that has the single key "rating",
a whole number from 1 to 10:
```json
{
"rating": 7
}```"""


class _Rubric(SimpleWorkflow):
    """The reward is a tenth of a judge's mark; 0 where the judge gives none."""

    needs_reward_fn = False

    def verdict(self, instructions: str, case: str, **options: Any) -> str:
        """Return what the judge says of a case (Any: how it is asked)."""
        raise NotImplementedError

    def reset(self, task: Task) -> None:
        """Take the question and the rubric of another task; no reward function is asked."""
        self.task = task
        self.raw_task, self.task_desc, self.truth = task.raw_task, task.task_desc, task.truth
        self.reply_prefix = task.format_args.reply_prefix
        self.system_prompt = task.format_args.system_prompt or SYSTEM_PROMPT
        self.rubric = list(task.raw_task.get("rubric") or [])

    def run(self) -> list[Experience]:
        """Return one experience for each answer."""
        responses = self.model.chat(self.format_messages(), **self.rollout_args)
        marks = [self._mark(response.response_text or "") for response in responses]
        success = sum(mark is not None for mark in marks) / max(1, len(marks))
        for place, (response, mark) in enumerate(zip(responses, marks, strict=True)):
            response.reward = 0.0 if mark is None else mark
            response.metrics = {**(response.metrics or {}), "judge_success": success}
            response.eid.run = self.run_id_base + place
        return responses

    def _mark(self, answer: str) -> float | None:
        return rating(self.verdict(JUDGE_PROMPT, self._case(answer), temperature=0.0))

    def _case(self, answer: str) -> str:
        rubrics = "\n".join(
            f"Rubric {number} (weight: {one['weight']}): {one['description']}"
            for number, one in enumerate(self.rubric)
        )
        return (
            f"<prompt>\n{self.task_desc}\n</prompt>\n<response>\n{answer}\n</response>\n"
            f"<rubrics>\n{rubrics or 'There are none.'}\n</rubrics>\nYour rating as JSON:"
        )


class RubricJudgeWorkflow(WithJudge, _Rubric):
    """The reward is a tenth of the judge's mark; 0 where the judge gives none.

    The judge is ``explorer.auxiliary_models[0]``. The column ``rubric`` holds a list of
    ``{"description": ..., "weight": ...}``.
    """


class RubricJudgeWorkflowWithAPI(_Rubric):
    """The same, with a judge behind an API that speaks as OpenAI's does.

    Arguments (``workflow_args``):
        judge_model_name: the judge.
        judge_api_base_url_env: the environment variable with the API's address, OPENAI_BASE_URL.
        judge_api_key_env: the one with its key, OPENAI_API_KEY.
    """

    conformance_args: ClassVar[dict[str, Any]] = {"workflow_args": {"judge_model_name": "scripted"}}

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse a taskset without a judge's name or address."""
        if not arguments.get("judge_model_name"):
            raise ConfigError(
                "rubric_judge_openai_workflow has no judge. Name it in "
                "workflow_args.judge_model_name, as its API knows it."
            )
        _address(arguments)

    client: OpenAI | None = None

    def reset(self, task: Task) -> None:
        """Take the question and the rubric of another task, and who judges.

        Raises:
            ConfigError: the judge has no name or no address.
        """
        self.check_arguments(task.workflow_args)
        super().reset(task)
        self.judge_name = str(task.workflow_args["judge_model_name"])
        self.close()
        self.client = _client_of(task.workflow_args)

    def verdict(self, instructions: str, case: str, **options: Any) -> str:
        """Return what the judge says of a case; an API that fails is a failed run."""
        assert self.client is not None, "reset makes it"
        asked: list[Any] = [
            {"role": "system", "content": instructions},
            {"role": "user", "content": case},
        ]
        reply = self.client.chat.completions.create(
            model=self.judge_name, messages=asked, **options
        )
        return reply.choices[0].message.content or ""

    def close(self) -> None:
        """Close the connections to the API."""
        if self.client is not None:
            self.client.close()


def missing_judge() -> None:
    """Refuse where the environment names no judge.

    Raises:
        ConfigError: it names none.
    """
    _address({})


def _client_of(arguments: Mapping[str, Any]) -> OpenAI:
    """Return a client of the API that the environment names."""
    from openai import OpenAI  # takes a second to import

    key = os.environ.get(arguments.get("judge_api_key_env", "OPENAI_API_KEY"))
    return OpenAI(base_url=_address(arguments), api_key=key or "EMPTY")


def _address(arguments: Mapping[str, Any]) -> str:
    """Return the address that the environment names."""
    name = arguments.get("judge_api_base_url_env", "OPENAI_BASE_URL")
    url = os.environ.get(name)
    if not url:
        raise ConfigError(
            f"the environment variable {name} is not set. Give it the address of the judge's API, "
            f"or name another one in workflow_args.judge_api_base_url_env."
        )
    return url
