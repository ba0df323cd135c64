"""A tiny model gets better where the algorithm is right."""

from itertools import pairwise

import pytest
import torch
from trinity.extend import PluginManager, get_manager
from trinity_testing.learning import LearningCurve, curve_table, learning_curve, lesson
from trinity_testing.learning.__main__ import main


@pytest.fixture(scope="module")
def curve():
    return learning_curve("grpo", get_manager())


def test_the_reward_reaches_the_goal_in_a_few_steps(curve):
    assert curve.before < 0.5
    assert curve.after >= 0.8
    assert curve.steps_to_goal == len(curve.rewards) - 1 < 30


def test_the_same_run_again_gives_the_same_curve(curve):
    again = learning_curve("grpo", get_manager(), max_steps=3)

    assert again.rewards == curve.rewards[:4]
    assert again.steps_to_goal is None


def test_who_looks_on_has_the_same_random_numbers_threads_and_plugins_as_before():
    manager, num_threads = get_manager(), torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)

    learning_curve("grpo", PluginManager.discover(env={}), max_steps=1)

    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == num_threads
    assert get_manager() is manager


def test_demonstrations_teach_too():
    assert learning_curve("sft", get_manager()).steps_to_goal is not None


def test_a_curve_says_what_it_shows():
    reached = LearningCurve(algorithm="opmd", rewards=(0.4, 0.6, 0.85), seconds=1.0)
    missed = LearningCurve(algorithm="flat", rewards=(0.4, 0.4), seconds=0.25)

    assert str(reached) == "reward 0.40 -> 0.85, 0.8 after 2 steps"
    assert str(missed) == "reward 0.40 -> 0.40, not 0.8 in 1 steps"
    assert curve_table([reached, missed]).splitlines()[2:] == [
        "| opmd | 0.40 | 0.85 | 2 | 1.0 |",
        "| flat | 0.40 | 0.40 | not reached | 0.2 |",
    ]


def test_a_good_demonstration_has_the_best_reward_and_a_bad_one_the_worst():
    encode = lesson.chat_format().encode

    assert lesson.reward(encode("abc#42")) == 1.0
    assert lesson.reward(encode("éüà")) == 0.0
    assert lesson.reward([*encode("ab"), *encode("é")]) == 0.5


def test_every_task_has_a_prompt_of_its_own():
    prompts = sorted(lesson.prompts())

    assert len(prompts) == lesson.NUM_TASKS
    assert all(one != other for one, other in pairwise(prompts))


def test_the_command_prints_a_table_and_names_what_cannot_run(capsys):
    assert main(["reinforceplusplus"]) == 0
    assert "| reinforceplusplus | 0." in capsys.readouterr().out

    assert main(["jsd"]) == 1
    assert "\njsd: algorithm.algorithm_type: algorithm jsd needs" in capsys.readouterr().out
