"""Let the model play a lost game a second time, knowing the first; learn what it then won."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.experience import Experience
from trinity.errors import EnvError, WorkflowError

from trinity_envs_alfworld.raft import Play, RAFTAlfworldWorkflow, nothing_learned
from trinity_envs_alfworld.raft_prompt import reflection
from trinity_envs_alfworld.workflow import report_of

if TYPE_CHECKING:
    from trinity_envs_alfworld.env import AlfworldEnv

__all__ = ["RAFTReflectAlfworldWorkflow", "without_first_attempt"]


class RAFTReflectAlfworldWorkflow(RAFTAlfworldWorkflow):
    """Plays as ``RAFTAlfworldWorkflow``; where the first play is lost, a second follows.

    In the second the model sees the first play and how it ended. What it then won in whole replies
    is an experience to imitate **without** the first play in its prompt: as if it had been that
    good at once. Tokens and log-probabilities are those of the sampling, which saw the first play,
    so it is for algorithms that imitate (``raft``), not for those that weigh by the old policy. A
    game that was won in replies that are not whole is not played again.

    Files of the plays are not written; ``info`` has what came of both.
    """

    def _not_won(self, first: Play, env: AlfworldEnv) -> Experience:
        if first.reward >= 1:
            return super()._not_won(first, env)
        told = reflection(reward=first.reward, steps=first.num_steps, max_steps=self.max_env_steps)
        before = [*first.messages, {"role": "system", "content": told}]
        second = self._played(env, before=before, stops=False)
        report = _report_of_both(first, second, env)
        if not (second.is_whole and second.reward > first.reward):
            return nothing_learned(first, report=report)
        experience = without_first_attempt(first, second)
        experience.info |= report
        experience.metrics = {k: float(v) for k, v in report.items() if not isinstance(v, str)}
        return experience


def without_first_attempt(first: Play, second: Play) -> Experience:
    """Return the second play as if it had been the first.

    The prompt is the first play's, up to its first reply; then come the second play's replies, and
    what stood between them, token for token as the engine had them::

        first   | system, first observation | reply ...
        second  | ... first play ..., reflection, first observation | REPLY | between | REPLY |
        result  | system, first observation | REPLY | between | REPLY |     capitals: learned

    Raises:
        EnvError: the game did not begin the same way.
        WorkflowError: the chat template writes earlier replies differently once others follow.
    """
    if first.observation != second.observation:
        raise EnvError("the game began otherwise the second time. Leave it out of the dataset.")
    opening = first.answers[0]
    tokens = opening.tokens[: opening.prompt_length].tolist()
    mask: list[bool] = []
    logprobs: list[float] = []
    said: list[int] = []  # all that the engine has had so far
    for answer in second.answers:
        ids, start = answer.tokens.tolist(), answer.prompt_length
        if ids[: len(said)] != said:
            raise WorkflowError(
                "the chat template changes earlier replies once others follow (one that takes out "
                "the thinking does), so the second play cannot be learned without the first. Set "
                "model.custom_chat_template to one that keeps them, or use RAFT_alfworld_workflow."
            )
        between = ids[len(said) : start] if said else []
        tokens += [*between, *ids[start:]]
        mask += [False] * len(between) + [True] * (len(ids) - start)
        logprobs += [0.0] * len(between) + _sampled(answer)
        said = ids
    return Experience(
        tokens=tokens,  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=opening.prompt_length,
        action_mask=mask,  # type: ignore[arg-type]  # becomes a tensor
        logprobs=logprobs,  # type: ignore[arg-type]  # becomes a tensor
        reward=second.reward,
        temperature=second.answers[0].temperature,
        messages=[dict(message) for message in second.messages],
        info={"model_version": min(one.info["model_version"] for one in second.answers)},
    )


def _sampled(answer: Experience) -> list[float]:
    assert answer.logprobs is not None, "the engine gives them with each reply"
    given: list[float] = answer.logprobs.tolist()
    return given


def _report_of_both(first: Play, second: Play, env: AlfworldEnv) -> dict[str, float | str]:
    return {
        **report_of(env, num_round=first.num_steps - 1, is_done=first.done, reward=first.reward),
        "steps": first.num_steps,
        "format_valid": float(second.is_whole),
        "second_reward": second.reward,
        "second_steps": second.num_steps,
        "improvement": float(second.reward > first.reward),
    }
