"""Questions about somebody's mails, which an agent searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError
from trinity.common.workflows import Workflow
from trinity.errors import BadTaskError, ConfigError

from trinity_compat_rft.emails.agent import EmailSearchAgent
from trinity_compat_rft.emails.mailbox import mailbox_path
from trinity_compat_rft.emails.records import AnswerModel, FinalRubric, QueryModel
from trinity_compat_rft.emails.worth import judge_correctness, worth
from trinity_compat_rft.tool_agent import FINISH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows import Task

__all__ = ["EmailSearchWorkflow"]

SYSTEM_PROMPT = (
    "You answer questions about a user's mails. Search them with search_emails and read what looks "
    "right with read_email; try other words where you find nothing. Say before each call what you "
    f"have seen and what comes next. Once you have the answer, call {FINISH}; you have {{turns}} "
    "turns.\nThe user's address is {inbox}.\nToday is {today}.\n"
)


class EmailSearchWorkflow(Workflow):
    """An agent searches mails; each call of the model is an experience with the answer's reward.

    The mails are in the file that ``DEFAULT_EMAIL_DB_PATH`` names. The row's columns:
    ``question``, ``answer``, ``message_ids``, ``inbox_address``, ``query_date``, ``id``,
    ``how_realistic``. The judge is ``explorer.auxiliary_models[0]``; with ``reward_fn_args``
    ``llm_as_a_judge: false`` an answer is right that stands in the row's own. As published,
    the judge reads "I don't know" like any other answer.

    Arguments (``workflow_args``):
        max_turns: most calls of the model, 10 unless given.
        tool_obs_char_limit: characters of a tool's answer that the agent sees; all unless given.
    """

    needs_endpoint: ClassVar[bool] = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {
            "id": 1,
            "question": "When do we meet?",
            "answer": "At noon.",
            "message_ids": ["<1@example.org>"],
            "how_realistic": 1.0,
            "inbox_address": "ann@example.org",
            "query_date": "2001-05-01",
        },
        "workflow_args": {"max_turns": 2},
        "reward_fn_args": {"llm_as_a_judge": False},
    }

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        """Take what a workflow takes.

        Raises:
            ConfigError: there is no judge, and ``llm_as_a_judge`` is on; or there are no mails.
            BadTaskError: the row lacks a column.
        """
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.has_judge = bool(task.reward_fn_args.get("llm_as_a_judge", True))
        if self.has_judge and not self.auxiliary_model_wrappers:
            raise ConfigError(
                "EmailSearchWorkflow needs auxiliary models: its judge is "
                "explorer.auxiliary_models[0], and the list is empty. Name a model there, or set "
                "reward_fn_args.llm_as_a_judge: false in the taskset."
            )
        self.check_arguments(task.workflow_args)
        self.max_turns = int(task.workflow_args.get("max_turns", 10))
        self.query = _query_of(task)

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse to start without the mails."""
        mailbox_path()

    async def run_async(self) -> list[Experience]:
        """Return an experience for each call of the model."""
        client = self.model.get_openai_async_client()
        limit = self.task.workflow_args.get("tool_obs_char_limit")
        given = self.task.rollout_args
        agent = EmailSearchAgent(
            client,
            self.model.model_name,
            self._system_prompt(),
            {"temperature": given.temperature, "max_tokens": given.max_tokens},
            AnswerModel,
            max_iters=self.max_turns,
            char_limit=None if limit is None else int(limit),
        )
        try:
            found = await agent.reply(str(self.task.task_desc))
        finally:
            await client.close()
            self.model.check_served()  # what the agent met is the engine's failure
        experiences = self.model.extract_experience_from_history()
        scores = await self._scores(found, agent=agent, num_turns=len(experiences))
        for experience in experiences:
            experience.reward = sum(scores.values())
            metrics = {"actual_turns": float(len(experiences)), **scores}
            experience.metrics = {**(experience.metrics or {}), **metrics}
        return experiences

    def _system_prompt(self) -> str:
        query = self.query
        return SYSTEM_PROMPT.format(
            turns=self.max_turns, inbox=query.inbox_address, today=query.query_date
        )

    async def _scores(
        self, found: Mapping[str, Any], *, agent: EmailSearchAgent, num_turns: int
    ) -> dict[str, float]:
        """Return the parts of the reward; -1 for a search that came to no end."""
        if not found:
            return {"accuracy": 0.0, "format": -1.0}
        answer, sources = found["answer"], found["sources"]
        if not self.has_judge:
            said = answer.strip().lower()  # nothing stands in every answer
            is_right = bool(said) and said in str(self.task.truth).lower()
            return {"accuracy": float(is_right), "format": 0.0}
        assert self.auxiliary_models, "the constructor looked"
        right_mail = self.query.message_ids[:1]
        rubric = FinalRubric(
            answer_correct=await judge_correctness(answer, self.query, self.auxiliary_models[0]),
            attempted_answer=bool(answer),
            returned_i_dont_know=answer == "I don't know",
            ever_found_right_email=_has(agent.message_id_list, right_mail),
            ever_read_right_email=_has(agent.ever_read_message_ids, right_mail),
            sources_correct=_has(sources, right_mail),
            num_sources=len(sources),
            num_turns=num_turns,
        )
        return worth(rubric, max_turns=self.max_turns)


def _has(names: list[str], right: list[str]) -> bool:
    return bool(right) and right[0] in names


def _query_of(task: Task) -> QueryModel:
    try:
        return QueryModel.model_validate(dict(task.raw_task))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadTaskError(
            f"{task.origin}: email_search_workflow cannot read the row: {wrong}. Rename or mend "
            f"these columns."
        ) from error
