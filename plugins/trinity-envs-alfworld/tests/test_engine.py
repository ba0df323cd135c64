"""The engine in its process: the same play, faster, as often and as many as one likes."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from tiny_game import WALKTHROUGH, a_game
from trinity.common.workflows.env_pool import EnvPool
from trinity_envs_alfworld import caches
from trinity_envs_alfworld.env import ENGINE, TIMEOUTS, create_environment
from trinity_envs_alfworld.folder import found_game

OTHERS = ["look", "inventory", "examine shelf 1", "", "open drawer 1", "go to drawer 1"]
PLAY = [*OTHERS, "open drawer 1", "help", "close drawer 1", *WALKTHROUGH]


def transcript(engine, commands=PLAY):
    return [engine.reset(), *(engine.step(command) for command in commands)]


def played(pool, game, commands=PLAY):
    with pool.lease(game) as engine:
        return transcript(engine, commands)


def resident_kb(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def test_a_play_of_the_walkthrough_wins(engines):
    *before, last = played(engines, a_game())
    assert last[:3] == ("You move the mug 1 to the desk 1.", 1.0, True)
    assert last[3]["won"]
    assert {reward for _, reward, is_done, _ in before[1:]} == {0.0}
    assert "Your task is to: put a mug in desk." in before[0][0]
    assert before[0][1]["obstacle"] == ""
    assert "go to drawer 1" in before[0][1]["admissible_commands"]


def test_what_is_no_command_does_nothing(engines):
    with engines.lease(a_game()) as engine:
        before = {key: value for key, value in engine.reset()[1].items() if key != "obstacle"}
        for command in ("", "take the mug", "go to shelf 3"):
            assert engine.step(command) == ("Nothing happens.", 0.0, False, before)


def test_transcripts_are_the_same_with_the_caches_and_without(engines):
    games = [a_game(), a_game(num_shelves=5, num_mugs=4), a_game(num_shelves=3)]
    plain = EnvPool(ENGINE, arguments={"fast": False}, timeouts=TIMEOUTS)
    expected = [played(plain, game) for game in games]
    plain.close()

    assert [played(engines, game) for game in games] == expected
    assert [played(engines, game) for game in reversed(games)] == expected[::-1]


def test_plays_at_the_same_time_are_the_same_as_one_after_the_other(engines):
    games = [a_game(num_shelves=number) for number in (2, 3, 4)]
    expected = [played(engines, game) for game in games]
    found: list[tuple[int, object]] = []

    def play(number):
        for turn in range(3):
            place = (number + turn) % len(games)
            found.append((place, played(engines, games[place])))

    threads = [threading.Thread(target=play, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert all(seen == expected[place] for place, seen in found)


def test_memory_stays_flat_over_many_resets_of_many_games():
    pool = EnvPool(ENGINE, arguments={"fast": True})
    games = [a_game(num_shelves=number) for number in range(2, 7)]
    sizes = []
    for _ in range(6):
        for game in games:
            with pool.lease(game) as engine:
                engine.reset()
                engine.reset()
        sizes.append(resident_kb(engine._slot.process.pid))
    pool.close()
    assert sizes[-1] < 1.05 * sizes[1]


def test_a_game_is_kept_in_the_process_that_has_it(data):
    path = str(next((data / "json_2.1.1" / "train").rglob("game.tw-pddl")))
    env = create_environment(path)
    process = env._lease._slot.process
    env.close()
    env = create_environment(path)
    assert env._lease._slot.process is process
    env.close()


def test_an_engine_that_looks_otherwise_is_left_as_it_is():
    class OtherLogic:
        class fast_downward:  # noqa: N801 -- a module's name
            @staticmethod
            def pddl2sas(domain, problem):
                return domain, problem

    class OtherTexts:
        pass

    class OtherTranslator:
        @staticmethod
        def pddl_to_sas(task):
            return task

    modules = {"logic": OtherLogic, "textgen": OtherTexts, "translate": OtherTranslator}
    assert "no attribute 'Rule'" in caches.obstacle(**modules)


def test_a_relative_path_begins_below_the_data_folder(data, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    whole = next((data / "json_2.1.1" / "valid_seen").rglob("game.tw-pddl"))
    relative = str(whole.relative_to(data))
    assert found_game(relative) == found_game(str(whole)) == found_game(whole.parent) == whole


def test_neither_the_folder_nor_the_variable_of_alfworld_is_touched(tmp_path, monkeypatch, data):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    pool = EnvPool(ENGINE)
    played(pool, a_game(), ["look"])
    pool.close()
    assert not list(tmp_path.rglob("*alfworld*"))


def test_the_translation_for_the_planner_is_never_made():
    calls = []

    class Engine:
        @staticmethod
        def pddl2sas(domain, problem, verbose=False, optimize=False):
            calls.append(problem)
            return object(), problem

    class Logic:
        fast_downward = Engine

        @staticmethod
        def _parse_and_convert(text, rule_name):
            return [text]

    class Texts:
        class Rule:
            @staticmethod
            def parse_conjunctive_query(expression):
                return [expression]

        @staticmethod
        def _parse_and_convert(text, rule_name):
            return [[text]]

        @staticmethod
        def copy_context(context):
            return context

    class Translate:
        @staticmethod
        def pddl_to_sas(task):
            return task

    modules = {"logic": Logic, "textgen": Texts, "translate": Translate}
    assert not caches.obstacle(**modules)
    translator = caches.install(**modules)
    assert caches.install(**modules) is translator is Engine.pddl2sas
    assert not caches.obstacle(**modules)
    assert Logic._parse_and_convert("a", "b") is Logic._parse_and_convert("a", "b")
    assert Engine.pddl2sas("d", "p", optimize=True) == (None, "")
    assert Engine.pddl2sas("d", "p") is Engine.pddl2sas("d", "p")
    assert calls == ["p"]
    first = Texts._parse_and_convert("a", rule_name="b")
    first[0].append("written")
    assert Texts._parse_and_convert("a", rule_name="b") == [["a"]]


def test_only_the_workers_modules_import_the_engine():
    importing = {
        path.name
        for path in Path(caches.__file__).parent.glob("*.py")
        if re.search(r"(from|import) (alfworld|textworld|fast_downward)", path.read_text())
    }
    assert importing == {"worker.py", "worker_rules.py"}


@pytest.mark.parametrize("num_games", [caches.NUM_GAMES_KEPT + 1])
def test_only_so_many_translations_are_kept(num_games):
    made = []
    remembered = caches.Translator(
        lambda domain, problem, verbose: made.append(problem), pddl_to_sas=str
    )
    for number in [*range(num_games), 0, num_games - 1]:
        remembered("d", str(number))
    assert made == [*map(str, range(num_games)), "0"]
