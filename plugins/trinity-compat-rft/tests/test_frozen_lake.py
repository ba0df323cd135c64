"""The lake's map and ice, and a walk over it."""

from __future__ import annotations

import pytest
from trinity.errors import BadTaskError, ConfigError
from trinity_compat_rft.workflows.frozen_lake import FrozenLakeWorkflow
from trinity_compat_rft.workflows.lake import Lake, random_map
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model

MAP = ["SFF", "FHF", "FFG"]
# of gymnasium 1.4.0 and the published generator of maps, which nothing else here needs
PUBLISHED_MAP = ["FFSF", "FHFF", "FFFH", "GHFF"]  # size 4, p 0.8, seed 42, 8 steps
PUBLISHED_PLACES = [(0, 0), (1, 0), (2, 0), (2, 0), (2, 1), (2, 2)]  # slippery, seed 5


def walk(*answers, **fields):
    task = a_task(
        workflow="frozen_lake_workflow",
        **{"raw_task": {"seed": 0}, "workflow_args": {"desc": MAP}, **fields},
    )
    return FrozenLakeWorkflow(task=task, model=scripted_model(*answers)).run()


def test_a_walk_to_the_goal_is_one_experience_worth_1() -> None:
    (experience,) = walk(*["Go ```Down```"] * 2, *["```right```"] * 2, "never asked")

    assert experience.reward == 1.0
    assert experience.metrics == {"env_steps": 4.0, "env_done": 1.0, "test_score": 1.0}
    assert experience.action_mask.sum() < experience.response_length  # observations are not learned


def test_a_walk_into_a_hole_ends_and_is_worth_nothing() -> None:
    (experience,) = walk("```Right```", "```Down```", "never asked")

    assert experience.reward == 0.0
    assert experience.metrics == {"env_steps": 2.0, "env_done": 1.0, "test_score": 0.0}


def test_a_walk_ends_after_the_most_turns_and_says_what_did_not_move() -> None:
    answers = ["I stay here.", "```Up```", "```Jump```"]
    (experience,) = walk(*answers, workflow_args={"desc": MAP, "agent_max_steps": 3})

    assert experience.metrics == {"env_steps": 3.0, "env_done": 0.0, "test_score": 0.0}


@pytest.mark.parametrize(
    ("given", "num_turns"), [({}, 2), ({"agent_max_steps": 3}, 3), ({"env_max_steps": 8}, 2)]
)
def test_the_older_max_steps_is_how_many_turns_a_walk_has(given, num_turns) -> None:
    arguments = {"desc": MAP, "max_steps": 2, **given}
    FrozenLakeWorkflow.check_arguments(arguments)
    (experience,) = walk(*["I stay here."] * 3, workflow_args=arguments)

    assert experience.metrics["env_steps"] == num_turns


def test_the_older_max_steps_is_how_far_a_way_may_be() -> None:
    row, turns = {"size": 4, "p": 0.8, "seed": 42}, {"agent_max_steps": 1}
    with pytest.raises(BadTaskError):  # no way is as short
        walk("x", raw_task=row, workflow_args={"max_steps": -1, **turns})
    own = {"max_steps": -1, "env_max_steps": 8, **turns}
    (experience,) = walk("x", raw_task=row, workflow_args=own)
    assert experience.metrics["env_steps"] == 1


def test_the_map_is_shown_with_player_holes_and_goal() -> None:
    lake = Lake(MAP, is_slippery=False, seed=0)

    assert str(lake) == " P \t _ \t _ \t\n _ \t O \t _ \t\n _ \t _ \t G \t"


def test_ice_that_is_not_slippery_takes_the_player_where_they_want_and_stops_at_walls() -> None:
    lake = Lake(MAP, is_slippery=False, seed=7)

    rewards = [lake.move(way) for way in ("up", "left", "right", "right", "down", "down", "left")]

    assert rewards == [0.0] * 5 + [1.0, 0.0]  # and nothing moves after the goal
    assert lake.place == (2, 2)


def test_slippery_ice_goes_straight_on_or_to_either_side_each_as_often() -> None:
    places = [Lake(["FFF", "FSF", "FFG"], is_slippery=True, seed=seed) for seed in range(300)]
    for lake in places:
        lake.move("up")
    ends = [lake.place for lake in places]

    shares = [ends.count(place) / len(ends) for place in ((0, 1), (1, 0), (1, 2))]
    assert sum(shares) == 1.0  # never back
    assert all(abs(share - 1 / 3) < 0.08 for share in shares)  # three standard errors


def test_a_seed_gives_the_published_map_and_slips() -> None:
    assert random_map(size=4, p=0.8, seed=42, max_steps=8) == PUBLISHED_MAP
    lake = Lake(["SFFF", "FFFF", "FFFF", "FFFG"], is_slippery=True, seed=5)
    ways = ["right", "down", "right", "down", "right", "right"]

    assert [(lake.move(way), lake.place)[1] for way in ways] == PUBLISHED_PLACES


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"raw_task": {"size": 1}, "workflow_args": {}}, "a lake of size 1 with p 0.8"),
        ({"raw_task": {"size": 2, "p": 1.5}, "workflow_args": {}}, "with p 1.5"),
        (
            {"raw_task": {"size": 4}, "workflow_args": {"env_max_steps": -1}},
            "had no way of -1 steps",
        ),
        ({"raw_task": {}, "workflow_args": {}}, "the row has no 'size'"),
    ],
)
def test_a_row_without_a_possible_map_is_a_bad_row(fields, message) -> None:
    with pytest.raises(BadTaskError, match=message):
        walk("x", **fields)


@pytest.mark.parametrize("arguments", [{"most_steps": 8}, {"desc": ["FFG"]}, {"desc": ["SXG"]}])
def test_wrong_arguments_are_refused_before_the_run(arguments) -> None:
    with pytest.raises(ConfigError, match=r"has no argument 'most_steps'|Give the rows of a map"):
        FrozenLakeWorkflow.check_arguments(arguments)
