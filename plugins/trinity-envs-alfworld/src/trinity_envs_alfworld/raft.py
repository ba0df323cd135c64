"""Let the model act in a household; only what it won is learned, by imitation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.common.workflows.multi_turn_workflow import MultiTurnWorkflow
from trinity.common.workflows.of_task import OfTask, checked_steps
from trinity.common.workflows.recorded_env import recorded

from trinity_envs_alfworld.raft_parts import RAFTParts
from trinity_envs_alfworld.raft_prompt import RAFT_SYSTEM_PROMPT, Reply, observed, parse_response
from trinity_envs_alfworld.settings import check_arguments, environment_of
from trinity_envs_alfworld.trial_games import TrialGames
from trinity_envs_alfworld.workflow import report_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.workflows import Task

    from trinity_envs_alfworld.env import AlfworldEnv

__all__ = ["Play", "RAFTAlfworldWorkflow"]

MAX_ENV_STEPS = 50  # published
MOST_ALIKE = 3  # commands in a row


@dataclass(kw_only=True)
class Play:
    """One play of a game.

    Attributes:
        observation: what the model sees first.
        observations: what it saw before each reply.
        messages: the conversation, as it is learned.
        answers: what the engine gave for each reply.
        replies: their parts.
        reward: the last one of the game: 1 where it was won, else 0.
        done: whether the game is over.
    """

    observation: str
    messages: list[dict[str, str]]
    observations: list[str] = field(default_factory=list)
    answers: list[Experience] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    reward: float = 0.0
    done: bool = False

    @property
    def num_steps(self) -> int:
        """Return how often the model was asked."""
        return len(self.replies)

    @property
    def is_whole(self) -> bool:
        """Return whether each reply has its three parts."""
        return all(reply.is_whole for reply in self.replies)

    @property
    def repeats_itself(self) -> bool:
        """Return whether the last three commands are one and the same."""
        last = [reply.action for reply in self.replies[-MOST_ALIKE:]]
        return len(last) == MOST_ALIKE and len(set(last)) == 1


class RAFTAlfworldWorkflow(RAFTParts, MultiTurnWorkflow):
    """Plays a game once; a play that is won, in whole replies, is an experience to imitate.

    Any other play gives one masked token, of which nothing is learned, with the metrics of the
    play. It is lost with the third same command in a row, or when ``max_env_steps`` are over. An
    evaluation gives the conversation, whatever came of it. What the engine raises fails the run;
    nothing stands for it.

    ``workflow_args`` are the fields of ``EnvSettings``, ``max_env_steps`` being 50.
    """

    can_reset = True
    conformance_args = TrialGames()
    max_env_steps: OfTask[int] = OfTask(
        lambda task: checked_steps(
            task.workflow_args.get("max_env_steps", MAX_ENV_STEPS),
            name="workflow_args.max_env_steps",
        )
    )
    _env: AlfworldEnv | None = None

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise if no row could run with these: see ``settings.check_arguments``."""
        check_arguments(arguments)

    def run(self) -> list[Experience]:
        """Return one experience for each of ``repeat_times`` plays of the game."""
        env: AlfworldEnv = recorded(lambda: environment_of(self.task), self.task)
        self._env = env
        try:
            return [self._attempted(env) for _ in range(self.repeat_times)]
        finally:
            self.close()

    def reset(self, task: Task) -> None:
        """Become what a new instance for the task would be."""
        self.close()
        super().reset(task)

    def close(self) -> None:
        """Give the environment back; one that hangs is killed."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _attempted(self, env: AlfworldEnv) -> Experience:
        first = self._played(env)
        if self.task.is_eval or (first.reward >= 1 and first.is_whole):
            return self._imitated(first, env)
        return self._not_won(first, env)

    def _not_won(self, first: Play, env: AlfworldEnv) -> Experience:
        """Return what stands for a play that is not to be imitated."""
        return nothing_learned(first, report=_report(first, env))

    def _imitated(self, play: Play, env: AlfworldEnv) -> Experience:
        report = _report(play, env)
        experience = self.process_messages_to_experience(play.messages, play.reward, report)
        experience.reward = play.reward  # also where the play filled the context, as published
        return experience

    def _played(
        self, env: AlfworldEnv, *, before: Sequence[dict[str, str]] = (), stops: bool = True
    ) -> Play:
        """Return a play.

        Args:
            env: the game.
            before: what the model was told before, in place of the system prompt alone.
            stops: whether a third same command in a row ends the play, unsaid to the game.
        """
        observation, _ = env.reset()
        system = {"role": "system", "content": RAFT_SYSTEM_PROMPT}
        play = Play(observation=observation, messages=[system])
        while play.num_steps < self.max_env_steps and not play.done:
            play.observations.append(observation)
            play.messages.append({"role": "user", "content": observed(observation)})
            told = [*before, *play.messages[1:]] if before else play.messages
            answer = self.model.chat(told)[0]
            text = answer.response_text or ""
            play.messages.append({"role": "assistant", "content": text})
            play.answers.append(answer)
            play.replies.append(parse_response(text))
            if answer.truncate_status == "prompt_truncated" or (stops and play.repeats_itself):
                play.reward = 0.0
                break
            observation, play.reward, play.done, _ = env.step(play.replies[-1].action)
        return play


def nothing_learned(play: Play, *, report: Mapping[str, float | str]) -> Experience:
    """Return an experience of one masked token: it carries the metrics of a play."""
    return Experience(
        tokens=play.answers[0].tokens[:2].clone(),
        prompt_length=1,
        logprobs=[0.0],  # type: ignore[arg-type]  # becomes a tensor
        action_mask=[False],  # type: ignore[arg-type]  # becomes a tensor
        reward=play.reward,
        info=dict(report),
        metrics={k: float(v) for k, v in report.items() if not isinstance(v, str)},
    )


def _report(play: Play, env: AlfworldEnv) -> dict[str, float | str]:
    return {
        **report_of(env, num_round=play.num_steps - 1, is_done=play.done, reward=play.reward),
        "steps": play.num_steps,
        "format_valid": float(play.is_whole),
    }
