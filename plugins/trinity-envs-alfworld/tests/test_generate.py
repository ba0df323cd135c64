"""Generated games are real ones, won by their own walkthrough, the same for the same seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import ConfigError, DataError
from trinity_envs_alfworld.data_check import missing_games
from trinity_envs_alfworld.games import SPLITS, TASK_TYPES, playable_games, task_type_of
from trinity_envs_alfworld.generate import Generator, is_won
from trinity_envs_alfworld.generate_problem import engine_names, identifier
from trinity_envs_alfworld.generate_room import SIZES
from trinity_envs_alfworld.generate_rules import WORKER, Rules
from trinity_envs_alfworld.generate_things import Goal, Item, Place, Room
from trinity_envs_alfworld.generate_write import write_games

pytestmark = pytest.mark.skipif(find_spec("alfworld") is None, reason="pip install alfworld")

ARGUMENTS = {
    "count": 8,
    "seed": 3,
    "sizes": ("tiny",),
    "splits": {"train": 0.75, "valid_seen": 0.25},
}


@pytest.fixture(scope="module")
def child():
    process = EnvProcess(WORKER)
    yield process
    process.close()


@pytest.fixture(scope="module")
def rules(child):
    return Rules.of(child.call("rules"))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")
    write_games(folder, **ARGUMENTS)
    return folder


def drawn(rules, *, count=60, split="train", seed=0, **options):
    """Return games that are not played."""
    generator = Generator(rules, seed=seed, **options)
    return [generator.game(split, index) for index in range(count)]


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_a_game_of_each_task_type_is_won_in_the_engine(task_type, child, rules):
    (game,) = drawn(rules, count=1, sizes=("small",), task_types=(task_type,))

    assert is_won(child, game, rules)


@pytest.mark.parametrize("broken", ["too short", "too long", "impossible"])
def test_a_walkthrough_that_does_not_win_at_its_last_command_is_refused(broken, child, rules):
    (game,) = drawn(rules, count=1, sizes=("tiny",))
    commands = {
        "too short": game.walkthrough[:-1],
        "too long": (*game.walkthrough, "look"),
        "impossible": (game.walkthrough[0], "go to the moon 1", *game.walkthrough[1:]),
    }

    assert not is_won(child, replace(game, walkthrough=commands[broken]), rules)


def test_another_game_takes_the_place_of_one_that_is_refused(rules):
    generator = Generator(rules)
    first = generator.game("train", 0)

    second = generator.game("train", 0, is_good=lambda game: game.problem != first.problem)

    assert (second.index, second.task_type) == (0, first.task_type)
    assert second.problem != first.problem


def test_it_gives_up_where_no_game_is_won(rules, golden):
    refused = []

    with pytest.raises(DataError) as told:
        Generator(rules).game("train", 7, is_good=refused.append)

    assert len(refused) == 20
    golden(str(told.value), "alfworld_generate_none_won")


@pytest.mark.parametrize("size", SIZES)
def test_a_room_has_as_many_things_as_its_size_says(size, rules):
    rooms = [game.room for game in drawn(rules, sizes=(size,))]
    places = [len(room.places) for room in rooms]
    items = [len(room.items) for room in rooms]

    fewest, most = SIZES[size].num_receptacles
    assert fewest <= min(places) <= max(places) <= most
    fewest, most = SIZES[size].num_objects
    assert fewest <= min(items) <= max(items) <= most


def test_a_tiny_room_has_at_most_two_places_to_open_where_the_task_needs_no_more(rules):
    games = drawn(rules, sizes=("tiny",), task_types=("pick_and_place_simple",))
    opened = [sum(p.kind in rules.openable for p in game.room.places) for game in games]

    assert max(opened) == 2


@pytest.mark.parametrize("size", SIZES)
def test_nothing_of_the_task_is_done_at_first(size, rules):
    for game in drawn(rules, sizes=(size,)):
        goal = game.room.goal
        kinds = {item.place.kind for item in game.room.items if item.kind == goal.item}

        assert kinds
        assert goal.place not in kinds


def test_every_thing_lies_where_such_things_may_lie(rules):
    for game in drawn(rules, sizes=("small", "large")):
        for item in game.room.items:
            assert item.kind in rules.holds[item.place.kind] or item.kind == game.room.goal.lamp


def test_no_two_receptacles_stand_at_one_spot(rules):
    for game in drawn(rules, sizes=("large",)):
        spots = [place.location for place in game.room.places]

        assert len({*spots, game.room.start}) == len(spots) + 1


def test_unseen_games_are_played_in_rooms_that_training_never_sees(rules):
    def scenes(split):
        return {game.room.scene for game in drawn(rules, count=36, split=split, sizes=("tiny",))}

    assert scenes("train") & scenes("valid_seen")
    assert not scenes("valid_unseen") & (scenes("train") | scenes("valid_seen"))


def test_no_opening_text_of_one_split_occurs_in_another_of_any_seed(rules):
    def openings(split):
        return {
            (*sorted(engine_names(game.room)[p.name] for p in game.room.places), game.sentence)
            for seed in (0, 1)
            for game in drawn(rules, count=36, split=split, seed=seed, sizes=("tiny",))
        }

    train, seen, unseen = (openings(split) for split in SPLITS)

    assert not train & seen
    assert not train & unseen
    assert not seen & unseen


def test_the_engine_numbers_things_of_a_kind_from_the_last_name_on():
    # in small letters "_minus_" sorts before "_plus_": the minus one is the last to be numbered
    left, right = (
        Place(kind="Shelf", name=f"Shelf|{x}|+01.00|+00.00", location="loc")
        for x in ("-01.00", "+01.00")
    )
    basin = Place(kind="SinkBasin", name="Sink|-01.00|+01.00|+00.00|SinkBasin", location="loc")
    mug = Item(kind="Mug", name="Mug|+00.00|+00.00|+00.00", place=left)
    goal = Goal(task_type=TASK_TYPES[0], item="Mug", place="Shelf")
    room = Room(scene=1, places=(left, right, basin), items=(mug,), start="loc", goal=goal)

    assert engine_names(room) == {
        left.name: "shelf 2",
        right.name: "shelf 1",
        basin.name: "sinkbasin 1",
        mug.name: "mug 1",
    }


def test_a_name_becomes_a_word_of_the_planning_language():
    assert identifier("Cabinet|+01.20|-00.50|+02.00") == (
        "Cabinet_bar__plus_01_dot_20_bar__minus_00_dot_50_bar__plus_02_dot_00"
    )


def test_the_files_are_where_the_published_rule_finds_them(root):
    games = {split: playable_games(root, split) for split in SPLITS}
    file = games["train"][0]
    told = json.loads((file.parent / "traj_data.json").read_text())
    game = json.loads(file.read_text())

    assert {split: len(found) for split, found in games.items()} == {
        "train": 6,
        "valid_seen": 2,
        "valid_unseen": 0,
    }
    assert {task_type_of(found) for found in games["train"]} == set(TASK_TYPES)
    assert told["task_type"] == task_type_of(file)
    assert (
        f"Your task is to: {told['turk_annotations']['anns'][0]['task_desc']}." in game["grammar"]
    )
    assert game["pddl_problem"] == (file.parent / "initial_state.pddl").read_text()
    assert (root / "logic" / "alfred.pddl").read_text() == game["pddl_domain"]
    assert missing_games(root) == ""
    assert "UNKNOWN GOAL" in (root / "logic" / "alfred.twl2").read_text()


def test_another_process_with_another_hash_seed_writes_the_same_bytes(root, tmp_path):
    code = f"""if True:
        from pathlib import Path
        from trinity_envs_alfworld.generate_write import write_games
        write_games(Path({str(tmp_path)!r}), **{ARGUMENTS}, num_processes=2)"""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}

    subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    assert files_below(tmp_path) == files_below(root)


def test_games_that_somebody_else_put_there_are_left_alone(tmp_path, golden):
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)

    with pytest.raises(DataError) as told:
        write_games(tmp_path, count=1)
    golden(str(told.value), "alfworld_generate_beside_published", TMP=tmp_path)


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("size", {"sizes": ("smal",)}),
        ("task_type", {"task_types": ("pick_and_place",)}),
        ("room", {"rooms": ("Garage",)}),
        ("task_not_done_there", {"task_types": (TASK_TYPES[3],), "rooms": ("Bathroom",)}),
    ],
)
def test_a_wrong_option_is_named_with_what_there_is(what, options, rules, golden):
    with pytest.raises(ConfigError) as told:
        Generator(rules, **options)
    golden(str(told.value), f"alfworld_generate_{what}")


@pytest.mark.parametrize("splits", [{"test": 1.0}, {"train": -1.0, "valid_seen": 2.0}, {}])
def test_shares_that_cannot_be_are_refused(splits, tmp_path):
    with pytest.raises(ConfigError, match="give each of train, valid_seen, valid_unseen a share"):
        write_games(tmp_path, count=1, splits=splits)


def files_below(folder):
    """Return the content of each file by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
