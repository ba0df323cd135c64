"""001: the workflow of many turns."""

from __future__ import annotations

import pytest
from trinity.common.experience import Experience
from trinity.common.workflows.workflow import MultiTurnWorkflow
from trinity_testing.builders import a_task
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


class House:
    """Ends with the third action, unless the first is to be mean."""

    made: list[House] = []  # noqa: RUF012 - of all instances

    def __init__(self, game):
        self.game, self.resets, self.closed, self.moves = game, 0, 0, 0
        self.made.append(self)

    def reset(self):
        self.resets, self.moves = self.resets + 1, 0
        return f"You are in {self.game}.", {}

    def step(self, action):
        if "break" in action:
            raise RuntimeError("it broke")
        self.moves += 1
        return f"Seen: {action}.", 1.0, self.moves == 3, {}

    def close(self):
        self.closed += 1


class HouseWorkflow(MultiTurnWorkflow):
    """As the guide builds one, in other words."""

    def episodes(self, env, count):
        experiences = []
        try:
            for _ in range(count):
                seen, _ = env.reset()
                score, memory, done = -0.1, [], False
                memory.append({"role": "system", "content": "Walk."})
                for turn in range(self.max_env_steps):  # noqa: B007 - as published
                    memory = memory + [{"role": "user", "content": seen}]  # noqa: RUF005 - as published
                    text = self.get_model_response_text(memory)
                    memory.append({"role": "assistant", "content": text})
                    seen, reward, done, _ = env.step(text)
                    if done:
                        score = reward
                        break
                info = {"env_rounds": turn, "env_done": 1 if done else 0}
                experiences.append(self.process_messages_to_experience(memory, score, info))
        finally:
            env.close()
        return experiences

    def run(self):
        return self.episodes(House(self.task_desc), self.repeat_times)


@pytest.fixture(autouse=True)
def _no_houses():
    House.made.clear()


def workflow_on(engine, **args):
    task = a_task(workflow=HouseWorkflow, workflow_args=args)
    return HouseWorkflow(task=task, model=model_over(engine))


def test_P040_messages_reward_and_info_become_one_experience() -> None:
    workflow = workflow_on(ScriptedEngine("go", repeat=True))
    memory = [{"role": "user", "content": "Where?"}]
    memory.append({"role": "assistant", "content": workflow.get_model_response_text(memory)})

    experience = workflow.process_messages_to_experience(memory, 1, {"env_done": 1})

    assert isinstance(experience, Experience)
    assert (experience.reward, experience.metrics) == (1.0, {"env_done": 1.0})


def test_P040_the_tokens_equal_the_engines_over_100_episodes() -> None:
    replies = [f"go <{number}> é\n to {number * 7} " for number in range(300)]
    engine = ScriptedEngine(*replies)

    experiences = workflow_on(engine).episodes(House("home"), 100)

    sampled = [token for e in engine.exchanges for token in e.completions[0].token_ids]
    trained = [t for e in experiences for t in e.tokens[e.prompt_length :][e.action_mask].tolist()]
    assert trained == sampled
    for number, experience in enumerate(experiences):
        own = engine.exchanges[3 * number : 3 * number + 3]
        assert not any(unsampled(experience, span, own) for span in trained_spans(experience))


def test_P041_unfinished_gives_a_tenth_off_and_env_done_0() -> None:
    [experience] = workflow_on(ScriptedEngine("go", repeat=True), max_env_steps=2).run()

    assert experience.reward == pytest.approx(-0.1)
    assert experience.metrics == {"env_rounds": 1.0, "env_done": 0.0}
    assert [house.closed for house in House.made] == [1]


def test_P042_the_text_is_returned_at_once() -> None:
    assert workflow_on(ScriptedEngine("go")).get_model_response_text(
        [{"role": "user", "content": "?"}]
    ) == "go"  # fmt: skip


def test_P043_a_task_gives_repeat_times_experiences(explored) -> None:
    task = a_task(workflow=HouseWorkflow, repeat_times=3)
    got = explored(task)

    assert [e.eid.run for e in got.experiences] == [0, 1, 2]
    assert {house.game for house in House.made} == {task.task_desc}


def test_P126_one_environment_serves_all_runs_and_is_closed_also_when_one_raises() -> None:
    workflow_on(ScriptedEngine("go", repeat=True)).episodes(House("home"), 4)
    with pytest.raises(RuntimeError, match="it broke"):
        workflow_on(ScriptedEngine("go", "break")).episodes(House("barn"), 4)

    assert [(house.resets, house.closed) for house in House.made] == [(4, 1), (1, 1)]


def test_P127_user_turns_are_masked_and_rebuilt_lists_keep_the_engines_tokens() -> None:
    engine = ScriptedEngine("one", "two", "three")

    [experience] = workflow_on(engine).run()

    spans = trained_spans(experience)
    assert len(spans) == 3
    assert not any(unsampled(experience, span, engine.exchanges) for span in spans)
