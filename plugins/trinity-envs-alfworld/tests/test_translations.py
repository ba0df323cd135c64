"""What one process translated spares the others; nobody plays a game that is not the file's."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import trinity_envs_alfworld.env as env_module
import trinity_envs_alfworld.translations as translations_module
from test_engine import PLAY
from test_failures import ENGINES
from tiny_game import GOAL, a_game, write_game
from trinity.errors import BadTaskError, EnvError
from trinity_envs_alfworld.env import create_environment
from trinity_envs_alfworld.folder import _problem, found_game
from trinity_envs_alfworld.translations import GameFile, SharedTranslations, Translation
from trinity_envs_alfworld.worker import AlfworldEngine


def transcript(lease):
    return [lease.reset(), *(lease.step(command) for command in PLAY)]


class Noting:
    """A pool that notes which of its leases came with a translation."""

    def __init__(self, pool):
        self.pool = pool
        self.told = []

    def lease(self, game):
        self.told.append(game.translation is not None)
        return self.pool.lease(game)


def test_a_second_process_is_told_and_plays_the_same(engines, tmp_path):
    game = GameFile(str(write_game(tmp_path, **a_game(num_shelves=8))), 1)
    pool, shared = Noting(engines), SharedTranslations()
    with shared.lease(pool, game) as first, shared.lease(pool, game) as second:
        assert transcript(first) == transcript(second)
    assert pool.told == [False, True]


def test_a_translation_is_used_for_its_own_problem_alone(engines, tmp_path):
    mine = GameFile(str(write_game(tmp_path, trial=1, **a_game(num_shelves=9))), 1)
    elsewhere = GOAL.replace("DeskType", "DrawerType")
    game = a_game(num_shelves=9, goal=elsewhere)
    with engines.lease(GameFile(str(write_game(tmp_path, trial=2, **game)), 1)) as lease:
        assert not transcript(lease)[-1][2]
        other = lease.call("translation")
        with engines.lease(replace(mine, translation=other)) as second:
            assert transcript(second)[-1][2]  # won: it was translated anew
            digest = second.call("translation").digest
            with engines.lease(replace(mine, translation=replace(other, digest=digest))) as third:
                assert not transcript(third)[-1][2]  # it is the other's goal


def test_a_translation_fits_its_problem_alone():
    translation = Translation.of("domain", "problem", text="begin\n\u00e9")
    assert translation.text_for("domain", "problem") == "begin\n\u00e9"
    assert translation.text_for("domainp", "roblem") is None


class FakePool:
    """Hands out itself as the lease; fails for games that are named so."""

    def __init__(self):
        self.leased = []
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def lease(self, game):
        self.leased.append((game.path, game.translation is not None))
        self.has_begun.set()
        self.may_go_on.wait(60)
        if game.path.startswith("bad"):
            raise EnvError("no")
        return self

    def call(self, method):
        return Translation(b"", bytes(10))

    def close(self):
        pass


@pytest.mark.parametrize("path", ["good", "bad"])
def test_of_many_at_once_one_translates_and_the_others_wait(path):
    pool, shared = FakePool(), SharedTranslations()
    pool.may_go_on.clear()
    failed = []

    def play():
        try:
            shared.lease(pool, GameFile(path, 1))
        except EnvError as error:
            failed.append(error)

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert pool.has_begun.wait(60)
    assert pool.leased == [(path, False)]
    pool.may_go_on.set()
    for thread in threads:
        thread.join(60)
    is_told = path == "good"
    assert sorted(pool.leased) == [(path, False), *[(path, is_told)] * 3]
    assert len(failed) == (0 if is_told else 4)  # each says so itself


def test_who_hangs_with_a_game_does_not_keep_the_others_from_it(monkeypatch):
    monkeypatch.setattr(translations_module, "LONGEST_WAIT_S", 0.01)
    hanging, pool, shared = FakePool(), FakePool(), SharedTranslations()
    hanging.may_go_on.clear()
    first = threading.Thread(target=shared.lease, args=(hanging, GameFile("good", 1)))
    first.start()
    assert hanging.has_begun.wait(60)
    shared.lease(pool, GameFile("good", 1))
    assert pool.leased == [("good", False)]
    hanging.may_go_on.set()
    first.join(60)
    assert not shared._coming


def test_only_so_many_bytes_are_kept_and_what_was_asked_for_last_stays():
    pool, shared = FakePool(), SharedTranslations(max_bytes=25)
    for path in ["a", "b", "a", "c", "a", "b"]:
        shared.lease(pool, GameFile(path, 1))
    told = [is_told for _, is_told in pool.leased]
    assert told == [False, False, True, False, True, False]


def test_a_game_that_fails_is_tried_by_everyone_and_keeps_nobody_waiting():
    pool, shared = FakePool(), SharedTranslations()
    for _ in range(2):
        with pytest.raises(EnvError):
            shared.lease(pool, GameFile("bad", 1))
    assert pool.leased == [("bad", False)] * 2
    assert not shared._coming


def test_the_plain_engine_shares_nothing(data, monkeypatch):
    monkeypatch.setattr(env_module, "_translations", None)
    monkeypatch.setattr(env_module, "ENGINE", f"{ENGINES}:RaisesInReset")
    path = next((data / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    create_environment(path, fast=False).close()


@pytest.mark.parametrize("asked", ["pathlib.Path.read_bytes", "os.stat"])
def test_a_file_that_cannot_be_read_now_may_be_read_later(asked, tmp_path, monkeypatch):
    path = write_game(tmp_path)
    really = {"pathlib.Path.read_bytes": Path.read_bytes, "os.stat": os.stat}[asked]

    def denied(file, **options):
        if file == path:
            raise PermissionError(13, "Permission denied")
        return really(file, **options)

    _problem.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(asked, denied)
        with pytest.raises(EnvError, match="Permission denied") as caught:
            found_game(path)
    assert not isinstance(caught.value, BadTaskError)
    assert found_game(path) == path


@pytest.mark.parametrize("name", ["x" * 5000, "no\0path", "game.tw-pddl/game.tw-pddl"])
def test_what_names_no_file_will_never_be_played(name, tmp_path):
    path = write_game(tmp_path)
    with pytest.raises(BadTaskError, match="there is no such file"):
        found_game(path.parent / name)


@pytest.mark.parametrize("error", [ImportError, MemoryError, OSError])
def test_what_is_no_fault_of_the_game_does_not_make_it_a_bad_one(error):
    engine = AlfworldEngine.__new__(AlfworldEngine)  # without textworld

    def load(content):
        raise error("not now")

    engine._env, engine._translator = SimpleNamespace(load=load), None
    with pytest.raises(error, match="not now"):
        engine.load(a_game())
