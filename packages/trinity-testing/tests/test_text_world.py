"""The text world has a best answer that is known, and who looks for it finds it."""

import pytest
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.learning_engine import LearningEngine
from trinity_testing.scripted_model import model_over
from trinity_testing.text_world import (
    BEST_RETURN,
    COLOURS,
    TextWorld,
    TextWorldPlanWorkflow,
    TextWorldWorkflow,
)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_rooms", [1, 2, 5])
def test_the_best_answers_have_the_best_return(seed, num_rooms):
    world = TextWorld(seed=seed, num_rooms=num_rooms)

    steps = [world.step(answer) for answer in world.best_answers]

    assert sum(reward for _, reward, _ in steps) == pytest.approx(BEST_RETURN)
    assert [is_over for _, _, is_over in steps] == [False] * (num_rooms - 1) + [True]


def test_a_wrong_door_costs_a_turn_and_leads_back():
    world = TextWorld(seed=3, num_rooms=2)
    first = world.reset()

    assert world.step("I stay here.") == (first, 0.0, False)
    assert world.step(world.best_answer) == ("Your time is over.", 0.5, True)


def test_equal_seeds_are_equal_worlds_and_reset_is_a_new_one():
    world, other = TextWorld(seed=7), TextWorld(seed=7)
    world.step(world.best_answer)

    assert world.reset() == other.reset()
    assert world.rooms == other.rooms
    assert TextWorld(seed=8).rooms != other.rooms


@pytest.mark.parametrize("seed", [0, 3])
def test_turn_by_turn_the_best_answers_get_the_reward_one(seed):
    answers = TextWorld(seed=seed).best_answers
    engine = ScriptedEngine(*answers)
    task = a_task(raw_task={"seed": seed})

    (experience,) = TextWorldWorkflow(task=task, model=model_over(engine)).run()

    assert experience.reward == BEST_RETURN
    assert engine.num_requests == len(answers)


def test_planned_in_one_answer_the_best_answers_get_the_reward_one():
    engine = ScriptedEngine(" and then ".join(TextWorld(seed=3).best_answers))
    task = a_task(raw_task={"seed": 3})

    (experience,) = TextWorldPlanWorkflow(task=task, model=model_over(engine)).run()

    assert (experience.reward, engine.num_requests) == (BEST_RETURN, 1)


@pytest.mark.parametrize("seed", range(4))
def test_an_engine_that_learns_finds_the_way(seed):
    engine = LearningEngine(COLOURS, seed=seed)
    task = a_task(raw_task={"seed": seed})
    returns = []
    for _ in range(120):
        (experience,) = TextWorldWorkflow(task=task, model=model_over(engine)).run()
        engine.learn([experience])
        returns.append(experience.reward)

    assert sum(returns[:5]) / 5 < 0.8
    assert sum(returns[-20:]) / 20 > 0.9


def test_an_engine_that_is_not_taught_stays_as_it_is():
    engine = LearningEngine(COLOURS)
    model_over(engine).chat([{"role": "user", "content": "Which door?"}])
    (exchange,) = engine.exchanges

    engine.learn([])

    assert engine.probabilities(exchange.request.prompt_token_ids) == pytest.approx([1 / 6] * 6)
