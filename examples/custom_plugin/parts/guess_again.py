"""A workflow that asks again after a wrong answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.rewards import REWARD_FUNCTIONS
from trinity.common.workflows import WORKFLOWS, Workflow

if TYPE_CHECKING:
    from trinity.common.experience import Experience


@WORKFLOWS.register_module("guess_again")
class GuessAgainWorkflow(Workflow):
    """Puts the question again, in the same conversation, until the answer is right.

    ``workflow_args``: ``max_tries`` (2), and ``discount`` (0.5), the factor of each further try.
    """

    can_reset = True

    def run(self) -> list[Experience]:
        """Return the last answer; what was said before is its prompt, and not trained on."""
        args = {"max_tries": 2, "discount": 0.5} | self.task.workflow_args
        question = {"role": "user", "content": self.task.task_desc}
        messages: list[dict[str, Any]] = []
        for num_tries in range(1, args["max_tries"] + 1):
            messages.append(question)
            answer = self.ask(messages)
            answer.reward = self.score(answer) * args["discount"] ** (num_tries - 1)
            answer.metrics |= {"tries": float(num_tries), "right": float(self.is_right(answer))}
            if self.is_right(answer):
                break
            messages.append({"role": "assistant", "content": answer.response_text})
        return [answer]

    def ask(self, messages: list[dict[str, Any]]) -> Experience:
        """Return the model's next answer, with all that was said before."""
        return self.model.chat(messages, n=1, temperature=self.task.rollout_args.temperature)[0]

    def is_right(self, answer: Experience) -> bool:
        """Return whether the answer is the truth, and nothing else."""
        return (answer.response_text or "").strip() == self.task.truth

    def score(self, answer: Experience) -> float:
        """Return what the task's reward function gives."""
        reward_fn = REWARD_FUNCTIONS.get(self.task.reward_fn)(**self.task.reward_fn_args)
        return sum(reward_fn(response=answer.response_text or "", truth=self.task.truth).values())
