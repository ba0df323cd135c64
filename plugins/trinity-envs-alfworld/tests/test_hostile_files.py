"""Games and archives that somebody made to do harm: nothing of them is run, nothing is written."""

from __future__ import annotations

import json
import stat
import zipfile
from importlib import resources

import pytest
from tiny_game import WALKTHROUGH, a_game, write_game
from trinity.common.workflows.env_pool import EnvPool
from trinity.errors import BadTaskError, DataError
from trinity_envs_alfworld import unpacking
from trinity_envs_alfworld.env import ENGINE
from trinity_envs_alfworld.expressions import value_of
from trinity_envs_alfworld.fetching import take

# Brackets, braces, bars and angles end an expression; what is left is enough to write a file.
WRITES = "__import__('pathlib').Path({victim!r}).write_text('here')"
INTRO = "-= Welcome to TextWorld, ALFRED! =-"
PLACES = {  # in a grammar, with what stands there
    "a first text": (INTRO, "{%s}"),
    "an answer": ("You close the {r.name}.", "{%s}"),
    "a text beside a name": ("{r.name or r.id}", "{r.name or %s}"),
    "a list": ("o.indefinite + ' ' + o.name | holds", "%s | holds"),
    "a command": ('template :: "look"', 'template :: "look {%s}"'),
    "a rule of an answer": ('"#help.feedback#"', '"#help.feedback# {%s}"'),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fast", [True, False])
def test_a_game_that_would_run_code_is_refused_by_name(place, fast, tmp_path, begin_here):
    victim = tmp_path / "written"
    game = a_game()
    before, after = PLACES[place]
    assert before in game["grammar"]
    code = WRITES.format(victim=str(victim))
    game["grammar"] = game["grammar"].replace(before, after % code, 1)
    path = write_game(tmp_path, **game)
    with pytest.raises(BadTaskError, match=r"no published game has: \{.*__import__") as caught:
        begin_here(path, fast=fast)

    assert not victim.exists()
    assert str(path) in str(caught.value)


def test_the_game_after_a_refused_one_is_played(engines):
    with pytest.raises(BadTaskError):
        engines.lease(a_game() | {"grammar": a_game()["grammar"].replace(INTRO, "{().x}")})
    with engines.lease(a_game()) as engine:
        engine.reset()
        *_, last = [engine.step(command) for command in WALKTHROUGH]

    assert last[3]["won"]


@pytest.mark.parametrize(
    "expression",
    [
        "().__class__", "r.__class__", "r.name.upper()", "r.name.__class__", "r['name']", "r()",
        "(lambda: r)()", "f'{r}'", "r.name * 9", "1 + 1", "r.name if r else r.id", "r and r.id",
        "(r := r.id)", "not r", "b'r'", "...", "None", "", "r." + "name", "r.format",
    ],
)  # fmt: skip
def test_only_what_published_grammars_write_is_worked_out(expression):
    thing = type("Thing", (), {"name": "mug 1", "id": "m"})()
    if expression == "r.name":
        assert value_of(expression, {"r": thing}) == "mug 1"
        return
    with pytest.raises(BadTaskError, match="It was not run"):
        value_of(expression, {"r": thing})


def test_expressions_mean_what_they_mean_in_python():
    class Thing:
        name, id, indefinite = "", "m", "a"

    thing = Thing()

    assert value_of(" r.name or r.id ", {"r": thing}) == "m"
    assert value_of("r.name or ''", {"r": thing}) == ""
    assert value_of("r.indefinite + ' ' + r.id", {"r": thing}) == "a m"
    assert value_of("r", {"r": thing}) is thing


def test_an_expression_of_great_depth_is_refused_at_once():
    with pytest.raises(BadTaskError, match="It was not run"):
        value_of("(" * 100_000 + "r" + ")" * 100_000, {})


def _zip(path, *members):
    """Write an archive of ``(name, content, mode)``, the name as it is."""
    with zipfile.ZipFile(path, "w") as opened:
        for name, content, mode in members:
            info = zipfile.ZipInfo("x")
            info.filename = info.orig_filename = name
            info.external_attr = mode << 16
            opened.writestr(info, content)
    return path


FILE, LINK, DEVICE = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o666


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("../outside", FILE, "no plain path"),
        ("a/../../outside", FILE, "no plain path"),
        ("/outside", FILE, "no plain path"),
        ("a//b", FILE, "no plain path"),
        ("a\\..\\b", FILE, "no plain path"),
        ("C:/outside", FILE, "no plain path"),
        ("a/./b", FILE, "no plain path"),
        ("/".join("abcdefghijklmn"), FILE, "no plain path"),
        ("a" * 300, FILE, "no plain path"),
        ("a\nb", FILE, "no plain path"),
        ("json_2.1.1/link", LINK, "a link or a device"),
        ("json_2.1.1/device", DEVICE, "a link or a device"),
        pytest.param(
            "good", FILE, "there twice", marks=pytest.mark.filterwarnings("ignore:Duplicate name")
        ),
    ],
)
def test_an_archive_with_a_member_that_no_archive_has_is_refused_whole(name, mode, said, tmp_path):
    archive = _zip(tmp_path / "a.zip", ("good", "1", FILE), (name, "/etc/hostname", mode))
    with pytest.raises(DataError, match=rf"a\.zip is no archive of games: .* {said}"):
        take(archive, tmp_path / "data")

    assert list((tmp_path / "data").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "data"]


def test_a_damaged_member_deletes_nothing_outside_the_folder(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    archive = _zip(tmp_path / "a.zip", ("../victim", "damaged content", FILE))
    archive.write_bytes(archive.read_bytes().replace(b"damaged", b"DAMAGED"))
    with pytest.raises(DataError):
        take(archive, tmp_path / "data")

    assert victim.read_text() == "kept"


@pytest.mark.parametrize(
    ("limit", "said"),
    [("MAX_FILES", "more than 1"), ("MAX_BYTES", "20 bytes"), ("MAX_FILE_BYTES", "longer than")],
)
def test_an_archive_of_too_much_is_refused_before_it_is_unpacked(
    limit, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(unpacking, limit, 1)
    archive = _zip(tmp_path / "a.zip", ("a", "x" * 10, FILE), ("b", "x" * 10, FILE))
    with pytest.raises(DataError, match=said):
        take(archive, tmp_path / "data")

    assert list((tmp_path / "data").iterdir()) == []


def test_an_encrypted_archive_is_refused(tmp_path):
    archive = _zip(tmp_path / "a.zip", ("a", "x", FILE))
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flags in the list of the archive
    archive.write_bytes(content)
    with pytest.raises(DataError, match="encrypted"):
        take(archive, tmp_path / "data")


def test_the_published_grammar_is_played_with_the_same_words_as_by_textworld_itself():
    """The grammar of the package, which the published games hold, plays letter by letter."""
    published = (resources.files("alfworld") / "data" / "alfred.twl2").read_text()
    held = json.loads(json.dumps(a_game()))["grammar"]
    assert held.replace("put a mug in desk", "UNKNOWN GOAL") == published

    pool = EnvPool(ENGINE)
    with pool.lease(a_game()) as engine:
        first, _ = engine.reset()
        texts = [engine.step(command)[0] for command in ("inventory", *WALKTHROUGH[:2], "look")]
    pool.close()

    assert first.startswith(f"{INTRO}\n\nYou are in the middle of a room. Looking quickly around")
    assert texts == [
        "You are not carrying anything.",
        "You arrive at shelf 1. On the shelf 1, you see a mug 1.",
        "You pick up the mug 1 from the shelf 1.",
        "You are facing the shelf 1. Next to it, you see nothing.",
    ]
