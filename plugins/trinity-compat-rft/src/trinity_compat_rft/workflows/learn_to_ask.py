"""A doctor who asks the patient the next question, or has heard enough."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trinity.common.workflows import SimpleWorkflow
from trinity.errors import ConfigError

from trinity_compat_rft.judging import WithJudge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = ["Learn2AskWorkflow", "fused"]

STOP = "<stop />"
TRAIN_MODES, FUSION_MODES = ("Ra+Rs", "Ra", "Rs"), ("default", "sum")
SYSTEM_PROMPT = (
    "You are a doctor who talks with a patient. Ask about one thing at a time that you still have "
    "to know, in one short and friendly question; ask nothing that was said already."
)
MAY_STOP = f" Once you know enough, reply with {STOP} and nothing else."
JUDGE_PROMPT = """You rate the doctor's last question in a talk between a doctor and a patient.
What the doctor still has to find out: {wanted}

content_score: 1.0 if the question asks for a part of it, 0.5 if it asks for something near to it,
0.0 otherwise.
format_score: 1.0 for a single short question, 0.5 for two questions at once, 0.0 otherwise.

Reply with both: <content_score>0.0</content_score><format_score>0.0</format_score>"""
_TAG = re.compile(r"<(content_score|format_score)>\s*([01](?:\.\d+)?)\s*</\1>")


class Learn2AskWorkflow(WithJudge, SimpleWorkflow):
    """Rewards when the doctor goes on or stops, and what is asked, which a judge rates.

    The judge is ``explorer.auxiliary_models[0]``. The prompt's column holds the talk (messages, or
    a text); ``decision_truth`` is ``continue`` or ``stop``, ``info_truth`` what has to be asked.
    A score that its reply lacks is 0; the metric ``judge_success`` is 1 where it has both.

    Arguments (``workflow_args``):
        train_mode: ``Ra+Rs`` (both), ``Ra`` (the question alone) or ``Rs`` (the decision alone).
        fusion_mode: ``default``: the decision times the question; ``sum``: their sum.
    """

    needs_reward_fn = False

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse a mode that does not exist."""
        for name, known in (("train_mode", TRAIN_MODES), ("fusion_mode", FUSION_MODES)):
            if arguments.get(name, known[0]) not in known:
                raise ConfigError(
                    f"learn2ask_workflow: {name} is {arguments[name]!r}. Use one of: "
                    f"{', '.join(known)}."
                )

    def reset(self, task: Task) -> None:
        """Take another talk; no reward function is asked."""
        self.check_arguments(task.workflow_args)
        self.task, self.raw_task = task, task.raw_task
        self.train_mode = task.workflow_args.get("train_mode", "Ra+Rs")
        self.fusion_mode = task.workflow_args.get("fusion_mode", "default")
        self.decision_truth = task.raw_task.get("decision_truth", "continue")
        self.info_truth = task.raw_task.get("info_truth", "None")
        talk: Any = task.task_desc  # Any: a cell of somebody's data
        self.talk = [{"role": "user", "content": talk}] if isinstance(talk, str) else list(talk)

    def format_messages(self) -> list[dict[str, str]]:
        """Return the talk, behind what the doctor has to do."""
        asked = SYSTEM_PROMPT + ("" if self.train_mode == "Ra" else MAY_STOP)
        return [{"role": "system", "content": asked}, *self.talk]

    def run(self) -> list[Experience]:
        """Return one experience for each reply."""
        responses = self.model.chat(self.format_messages(), **self.rollout_args)
        for place, response in enumerate(responses):
            scores = self._scores(response.response_text or "")
            response.reward = fused(scores, train_mode=self.train_mode, fusion=self.fusion_mode)
            response.metrics = {**(response.metrics or {}), **scores}
            response.eid.run = self.run_id_base + place
        return responses

    def _scores(self, reply: str) -> dict[str, float]:
        decision = "stop" if STOP in reply else "continue"
        if decision != self.decision_truth:
            return {"action_score": 0.0, "content_score": 0.0, "format_score": 0.0}
        if decision == "stop":
            alone = float(reply == STOP)
            return {"action_score": 1.0, "content_score": 1.0, "format_score": alone}
        return {"action_score": 1.0, "content_score": 0.0, "format_score": 0.0} | self._rated(reply)

    def _rated(self, reply: str) -> dict[str, float]:
        """Return the scores in the judge's reply, and whether it has both."""
        names = {"user": "patient", "assistant": "doctor"}
        turns = [*self.talk, {"role": "assistant", "content": reply}]
        told = [f"{names[t['role']]}: {t['content']}" for t in turns if t["role"] in names]
        verdict = self.verdict(JUDGE_PROMPT.format(wanted=self.info_truth), "\n".join(told))
        scores = {name: float(value) for name, value in _TAG.findall(verdict)}
        return scores | {"judge_success": float(len(scores) == 2)}


def fused(scores: Mapping[str, float], *, train_mode: str, fusion: str) -> float:
    """Return the reward: of a decision a, a question q and a form f.

    ``a (1 + 2 q) + f``, or with ``sum`` ``a + q + f``; for Ra ``2 q + f``, for Rs ``3 a + f``.

    >>> fused({"action_score": 1, "content_score": 0.5, "format_score": 1}, train_mode="Ra+Rs",
    ...       fusion="default")
    3.0
    """
    action, content, form = (scores[f"{name}_score"] for name in ("action", "content", "format"))
    if train_mode == "Ra":
        return 2 * content + form
    if train_mode == "Rs":
        return 3 * action + form
    return action + content + form if fusion == "sum" else action * (1 + 2 * content) + form
