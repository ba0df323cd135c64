"""The workflows in the real engine, with models that need no weights."""

from __future__ import annotations

import os
import random
import re
import signal

import pytest
from alfworld_runs import BOTH, GAME, a_workflow, prompt_of, saying, the_run
from tiny_game import WALKTHROUGH, a_game, write_game
from trinity.errors import BadTaskError, ConfigError, DataError, EnvError
from trinity_envs_alfworld.env import AlfworldEnv, create_environment
from trinity_envs_alfworld.prompt import AlfWORLD_SYSTEM_PROMPT, parse_action
from trinity_envs_alfworld.step_wise import StepWiseAlfworldWorkflow
from trinity_envs_alfworld.workflow import AlfworldWorkflow
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled
from trinity_testing.engines import AnsweringEngine, ScriptedEngine


class Wanderer(AnsweringEngine):
    """Says one of the listed commands, sometimes nothing of use."""

    def __init__(self, seed):
        super().__init__()
        self._rng = random.Random(seed)

    def answer(self, request):
        text = self.tokenizer.decode(list(request.prompt_token_ids))
        last = text.rpartition("Admissible commands:\n")[2]
        commands = [line for line in last.splitlines() if re.fullmatch(r"[a-z0-9 ]+", line)]
        command = self._rng.choice([*commands, "sing"])
        return f"<think>{self._rng.random()}</think><action>{command}</action>"


@pytest.mark.parametrize("cls", BOTH)
def test_only_the_engines_tokens_are_trained_in_50_episodes(cls, data):
    for seed in range(50):  # of both workflows: 100 episodes
        engine = Wanderer(seed)
        experiences = a_workflow(cls, engine, data=data, max_env_steps=4).run()
        said = [list(one.completions[0].token_ids) for one in engine.exchanges]
        trained = []
        for experience in experiences:
            response = experience.tokens[experience.prompt_length :].tolist()
            is_masked = experience.action_mask is not None
            mask = experience.action_mask.tolist() if is_masked else [True] * len(response)
            trained += [token for token, is_own in zip(response, mask, strict=True) if is_own]
            for span in trained_spans(experience):
                assert not unsampled(experience, span, engine.exchanges)
        assert trained == [token for tokens in said for token in tokens]


@pytest.mark.parametrize("cls", BOTH)
def test_a_game_that_is_won_gives_1(cls, data):
    experiences, engine = the_run(cls, *saying(*WALKTHROUGH), data=data)

    assert len(engine.exchanges) == 4
    assert {one.reward for one in experiences} == {1.0}
    metrics = experiences[-1].metrics
    assert (metrics["env_rounds"], metrics["env_done"], metrics["success"]) == (3, 1, 1)
    assert metrics["success/pick_and_place_simple"] == 1
    assert experiences[-1].info["task_type"] == "pick_and_place_simple"


@pytest.mark.parametrize("cls", BOTH)
def test_a_game_that_is_not_finished_costs_a_tenth(cls, data):
    experiences, engine = the_run(cls, *saying("look"), data=data, max_env_steps=3)

    assert len(engine.exchanges) == 3
    assert {one.reward for one in experiences} == {-0.1}
    metrics = experiences[-1].metrics
    assert (metrics["env_rounds"], metrics["env_done"], metrics["success"]) == (2, 0, 0)
    assert metrics["success/pick_and_place_simple"] == 0


def test_a_play_is_one_experience_or_one_a_step(data):
    (whole,), _ = the_run(AlfworldWorkflow, *saying(*WALKTHROUGH), data=data)
    steps, _ = the_run(StepWiseAlfworldWorkflow, *saying(*WALKTHROUGH), data=data)

    assert [step.eid.step for step in steps] == [0, 1, 2, 3]
    assert len({step.info["env_state_hash"] for step in steps}) == 4
    assert len(whole.tokens) == len(steps[-1].tokens)


@pytest.mark.parametrize("cls", BOTH)
def test_the_model_sees_the_task_and_the_admissible_commands(cls, data):
    _, engine = the_run(cls, *saying("go to shelf 1"), data=data, max_env_steps=2)

    assert AlfWORLD_SYSTEM_PROMPT.strip() in prompt_of(engine, 0)
    assert "Observation:\n-= Welcome to TextWorld, ALFRED! =-" in prompt_of(engine, 0)
    assert "Your task is to: put a mug in desk." in prompt_of(engine, 0)
    assert "\ntake mug 1 from shelf 1\n" not in prompt_of(engine, 0)
    assert "Observation:\nYou arrive at shelf 1. On the shelf 1, you see a mug 1.\n\n" in prompt_of(
        engine, 1
    )
    assert "Admissible commands:\nexamine shelf 1\ngo to desk 1\n" in prompt_of(engine, 1)
    assert "\ntake mug 1 from shelf 1" in prompt_of(engine, 1)


@pytest.mark.parametrize("reply", ["I do not know.", "<action>sing", "<action>take all</action>"])
def test_what_cannot_be_read_or_done_is_answered_by_the_environment(reply, data):
    _, engine = the_run(AlfworldWorkflow, reply, data=data, max_env_steps=2)
    assert "Observation:\nNothing happens.\n" in prompt_of(engine, 1)


def test_the_last_action_of_a_reply_counts():
    assert parse_action("<action>look</action> no, <action>\nopen drawer 1\n</action>") == (
        "open drawer 1"
    )
    assert parse_action("<action>look") == ""


class CountingEnv:
    """An environment that counts what is asked of it."""

    def __init__(self, *, fails_in=""):
        self.calls = []
        self._fails_in = fails_in

    def _asked(self, name):
        self.calls.append(name)
        if name == self._fails_in:
            raise EnvError(f"{name} failed")

    def reset(self):
        self._asked("reset")
        return "A room.", {}

    def step(self, action):
        self._asked("step")
        return "A room.", 1, True, {}

    def close(self):
        self._asked("close")


def test_P126_one_environment_serves_all_runs_by_reset_and_is_closed_once(data):
    env = CountingEnv()
    workflow = a_workflow(AlfworldWorkflow, ScriptedEngine("x", repeat=True), data=data)
    experiences = workflow.generate_env_inference_samples(env, 3)

    assert [one.reward for one in experiences] == [1.0, 1.0, 1.0]
    assert env.calls == ["reset", "step"] * 3 + ["close"]


@pytest.mark.parametrize("fails_in", ["reset", "step"])
def test_P126_it_is_closed_once_also_where_a_run_raises(fails_in, data):
    env = CountingEnv(fails_in=fails_in)
    workflow = a_workflow(AlfworldWorkflow, ScriptedEngine("x", repeat=True), data=data)
    with pytest.raises(EnvError, match=f"{fails_in} failed"):
        workflow.generate_env_inference_samples(env, 3)
    assert env.calls.count("close") == 1
    assert env.calls[-1] == "close"


@pytest.mark.parametrize("cls", BOTH)
def test_an_instance_plays_another_game_after_reset(cls, data):
    workflow = a_workflow(cls, ScriptedEngine(*saying(*WALKTHROUGH), repeat=True), data=data)
    first = workflow.run()
    workflow.reset(workflow.task)
    assert [one.reward for one in workflow.run()] == [one.reward for one in first]
    workflow.close()


def test_P125_the_environment_returns_the_published_tuples(data):
    env = create_environment(GAME, data=data)
    observation, info = env.reset()
    assert isinstance(observation, str)
    assert info["admissible_commands"]
    observation, reward, is_done, info = env.step("look")
    assert (type(observation), type(reward), is_done, info["won"]) == (str, float, False, False)
    env.close()


class KillsIt(AnsweringEngine):
    """Kills the environment's process at the second turn."""

    def __init__(self, workflow_of):
        super().__init__()
        self._workflow_of = workflow_of

    def answer(self, request):
        if len(self.exchanges) == 1:
            env: AlfworldEnv = self._workflow_of()
            os.kill(env._lease._slot.process.pid, signal.SIGKILL)
        return saying("look")[0]


@pytest.mark.parametrize("cls", BOTH)
def test_a_killed_environment_ends_its_run_and_the_next_one_has_another(cls, data):
    made = []
    engine = KillsIt(lambda: getattr(made[0], "env", None) or made[0]._env)
    made.append(a_workflow(cls, engine, data=data))
    with pytest.raises(EnvError, match=r"killed by SIGKILL; another takes its place\..*others go"):
        made[0].run()
    made[0].close()

    experiences, _ = the_run(cls, *saying(*WALKTHROUGH), data=data)
    assert experiences[-1].reward == 1.0


def a_bad_game(data, **content):
    return str(write_game(data, split="bad", **content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("alfworld_no_game", {"grammar": "", "pddl_domain": ""}),
        ("alfworld_marked_unsolvable", {"solvable": False}),
        ("alfworld_unreadable_problem", {"pddl_problem": "(define (problem"}),
        (
            "alfworld_goal_out_of_reach",
            {"pddl_problem": a_game()["pddl_problem"].replace("(canContain DeskType MugType)", "")},
        ),
    ],
)
def test_a_game_that_cannot_be_played_says_so(name, content, tmp_path, golden):
    game = a_bad_game(tmp_path, **content)
    with pytest.raises(BadTaskError) as caught:
        the_run(AlfworldWorkflow, "x", data=tmp_path, game=game)
    golden(_without_place(caught.value), name, TMP=tmp_path)


def test_missing_data_and_games_say_so(tmp_path, golden):
    with pytest.raises(DataError) as caught:
        the_run(AlfworldWorkflow, "x", data=tmp_path / "none", game="a/game.tw-pddl")
    golden(str(caught.value), "alfworld_no_data", TMP=tmp_path)
    with pytest.raises(DataError, match="is no folder with ALFWorld's games"):
        the_run(AlfworldWorkflow, "x", data=tmp_path, game="json_2.1.1/train/a/game.tw-pddl")
    with pytest.raises(BadTaskError) as caught:
        the_run(AlfworldWorkflow, "x", data=tmp_path, game="a/game.tw-pddl")
    golden(str(caught.value), "alfworld_no_such_game", TMP=tmp_path)
    with pytest.raises(EnvError, match="there is no such file"):
        the_run(AlfworldWorkflow, "x", data=tmp_path, game="Put a mug on the desk. " * 50)
    with pytest.raises(DataError) as caught:
        the_run(AlfworldWorkflow, "x", data=tmp_path, game=None)
    golden(str(caught.value), "alfworld_row_without_game")


@pytest.mark.parametrize("cls", BOTH)
def test_a_misspelt_argument_is_refused_with_the_nearest(cls, data):
    with pytest.raises(ConfigError, match=r"no 'fsat'. Did you mean 'fast'\?"):
        the_run(cls, "x", data=data, fsat=False)
    with pytest.raises(ConfigError, match=r"workflow_args.fast is 'no'"):
        the_run(cls, "x", data=data, fast="no")
    workflow = a_workflow(cls, ScriptedEngine("x"), data=data)
    workflow.task.workflow_args["data"] = 5
    with pytest.raises(ConfigError, match=r"workflow_args.data is 5. Give the path of a folder"):
        workflow.run()


def test_a_game_that_is_changed_where_it_lies_is_played_as_it_is_now(tmp_path):
    game = write_game(tmp_path)
    for number, task in enumerate(["put a mug in desk", "bring a mug to desk"]):
        game.write_text(game.read_text().replace("put a mug in desk", task))
        os.utime(game, ns=(number, number))
        env = create_environment(game)
        assert f"Your task is to: {task}." in env.reset()[0]
        env.close()


def test_a_relative_data_folder_is_found_from_a_process_that_was_started_elsewhere(
    tmp_path, monkeypatch
):
    write_game(tmp_path / "here" / "data", trial=1)
    elsewhere = create_environment(write_game(tmp_path, trial=2))
    elsewhere.close()  # its process is free, and was started in another folder
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("ALFWORLD_DATA", "data")
    env = create_environment(GAME)
    assert env.game_file == tmp_path / "here" / "data" / GAME
    assert "Your task is to" in env.reset()[0]
    env.close()


def test_trinity_plugins_check_tries_real_games_where_there_are_some(data, tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    for cls in BOTH:
        arguments = cls.conformance_args
        rows = [arguments[name]["game_file"] for name in ("raw_task", "other_raw_task")]
        assert ["valid_unseen" in rows[0], "valid_seen" in rows[1]] == [True, True]
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert AlfworldWorkflow.conformance_args == {}


def test_the_published_names_lead_here():
    from trinity.common.workflows import WORKFLOWS
    from trinity.common.workflows import AlfworldWorkflow as Exported
    from trinity.common.workflows.envs.alfworld import alfworld_workflow as published
    from trinity.common.workflows.step_wise_workflow import StepWiseAlfworldWorkflow as StepWise

    assert Exported is published.AlfworldWorkflow is AlfworldWorkflow
    assert WORKFLOWS.get("alfworld_workflow") is AlfworldWorkflow
    assert WORKFLOWS.get("step_wise_alfworld_workflow") is StepWise is StepWiseAlfworldWorkflow
    assert published.AlfWORLD_SYSTEM_PROMPT == AlfWORLD_SYSTEM_PROMPT
    for name in ("format_observation", "parse_action", "create_environment"):
        assert callable(getattr(published, name))


def _without_place(error):
    return re.sub(r" at \S+:\d+", " at <PLACE>", str(error))
