"""Which games may be played, how they come, and what is missing."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
import zipfile
from pathlib import Path

import pytest
from tiny_game import write_game
from trinity.errors import DataError
from trinity_envs_alfworld import assets, data_check
from trinity_envs_alfworld.data_check import missing_games
from trinity_envs_alfworld.fetching import ARCHIVES
from trinity_envs_alfworld.games import (
    PUBLISHED_COUNTS,
    SPLITS,
    TASK_TYPES,
    playable_games,
    rows,
    task_type_of,
)

COUNTS = {"train": 3, "valid_seen": 2, "valid_unseen": 1}


def a_folder(root, counts=COUNTS):
    """Write a folder of the published layout with few games, some of which must not be played."""
    for split, count in counts.items():
        for trial in range(count):
            write_game(root, split=split, trial=trial, kind=TASK_TYPES[trial % 6], grammar="g")
        write_game(root, split=split, trial=90, solvable=False)
        write_game(root, split=split, trial=91, kind="pick_and_place_with_movable_recep")
        (game := write_game(root, split=split, trial=92)).with_name("traj_data.json").unlink()
        sliced = game.parent.parent.with_name("pick_and_place_simple-AppleSliced-None-Desk-301")
        shutil.copytree(write_game(root, split=split, trial=93).parent, sliced / "trial_T1")
        (write_game(root, split=split, trial=93)).unlink()
    return root


@pytest.fixture
def few(monkeypatch):
    """Let the published data have 3, 2 and 1 games."""
    monkeypatch.setattr(data_check, "PUBLISHED_COUNTS", COUNTS)


def archives_of(folder, to):
    """Pack the folder as the three published archives."""
    names = {"json": "traj_data.json", "pddl": "initial_state.pddl", "tw-pddl": "game.tw-pddl"}
    for archive, kept in zip(ARCHIVES, names.values(), strict=True):
        path = to / archive
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as opened:
            for file in folder.rglob(kept):
                opened.write(file, file.relative_to(folder))
    return to


def test_the_published_rule_chooses_the_games(tmp_path):
    a_folder(tmp_path)
    for split, count in COUNTS.items():
        games = playable_games(tmp_path, split)
        assert {game.parent.name for game in games} == {f"trial_T{n:03}" for n in range(count)}
        assert games == sorted(games)
    assert len(list(tmp_path.glob("json_2.1.1/train/*/*/game.tw-pddl"))) > COUNTS["train"]


def test_a_game_without_the_word_solvable_is_left_out(tmp_path):
    game = write_game(tmp_path)
    content = json.loads(game.read_text())
    del content["solvable"]
    game.write_text(json.dumps(content))
    assert playable_games(tmp_path, "train") == []


def test_the_published_data_have_so_many():
    assert PUBLISHED_COUNTS == {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
    assert len(TASK_TYPES) == 6


def test_rows_are_sorted_and_relative(tmp_path):
    a_folder(tmp_path)
    found = rows(tmp_path, "train")
    paths = [row["game_file"] for row in found]
    assert paths == sorted(paths)
    assert all((tmp_path / path).is_file() and not Path(path).is_absolute() for path in paths)
    assert {row["target"] for row in found} == {""}
    with pytest.raises(DataError, match="holds no game that may be played"):
        rows(tmp_path, "valid_other")


def test_a_path_tells_the_type():
    for task_type in TASK_TYPES:
        path = f"/d/json_2.1.1/train/{task_type}-A-None-B-1/trial_T1/game.tw-pddl"
        assert task_type_of(path) == task_type
    assert task_type_of("/d/own/game.tw-pddl") == "other"


def test_what_is_missing_is_named(tmp_path, few, golden):
    text = [assets.missing(data=str(tmp_path))]
    a_folder(tmp_path)
    assert missing_games(tmp_path) == ""
    shutil.rmtree(tmp_path / "json_2.1.1" / "valid_seen")
    playable_games(tmp_path, "train")[0].unlink()
    text.append(assets.missing(data=str(tmp_path)))
    golden("\n".join(map(str, text)), "alfworld_data_missing", TMP=tmp_path)


def test_a_missing_engine_is_named_without_importing_it(monkeypatch, few, tmp_path):
    monkeypatch.setattr(data_check, "find_spec", lambda name: None)
    assert "package alfworld and textworld and fast_downward; run: " in assets.missing(
        data=str(tmp_path)
    )


def test_a_folder_with_invented_games_has_its_own_counts(tmp_path):
    write_game(tmp_path)
    assert "train holds 1 games to play, not 3,553" in missing_games(tmp_path)
    (tmp_path / "generated.json").write_text('{"num_games": {"train": 1}}')
    assert missing_games(tmp_path) == ""
    (tmp_path / "generated.json").write_text("")
    assert "not 3,553" in missing_games(tmp_path)
    with pytest.raises(DataError, match="holds invented games"):
        assets.fetch(data=str(tmp_path))


@pytest.mark.parametrize("kind", ["folder", "archives", "archive"])
def test_games_are_taken_from_files(kind, tmp_path, few):
    source = a_folder(tmp_path / "source")
    if kind == "archives":
        packed = archives_of(source, tmp_path / "packed")
        for archive in packed.rglob("*.zip"):
            archive.rename(packed / archive.name)
        source = packed
    elif kind == "archive":
        source = Path(shutil.make_archive(str(tmp_path / "all"), "zip", source))
    root = tmp_path / "data"
    assets.fetch(data=str(root), from_=str(source))
    assert assets.missing(data=str(root)) is None
    assert len(rows(root, "train")) == 3
    assert (root / "logic" / "alfred.twl2").read_text().startswith("grammar")


def test_too_few_games_and_no_archive_are_refused(tmp_path, few, golden):
    source = a_folder(tmp_path / "source", {**COUNTS, "train": 2})
    with pytest.raises(DataError) as caught:
        assets.fetch(data=str(tmp_path / "data"), from_=str(source))
    golden(str(caught.value), "alfworld_data_cut_short", TMP=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as caught:
        assets.fetch(data=str(tmp_path / "data"), from_=str(tmp_path / "empty"))
    golden(str(caught.value), "alfworld_from_nothing", TMP=tmp_path)
    (tmp_path / "a.zip").write_text("no archive")
    with pytest.raises(DataError) as caught:
        assets.fetch(data=str(tmp_path / "data"), from_=str(tmp_path / "a.zip"))
    golden(str(caught.value), "alfworld_damaged_archive", TMP=tmp_path)


def test_a_damaged_file_of_an_archive_is_not_taken_for_a_whole_one_later(tmp_path, few):
    source = a_folder(tmp_path / "source")
    game = playable_games(source, "train")[0]
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    for path in (good, bad):
        with zipfile.ZipFile(path, "w") as opened:
            for file in source.rglob("*"):
                opened.write(file, file.relative_to(source))
    text = game.read_bytes()
    bad.write_bytes(bad.read_bytes().replace(text, text.replace(b"mug", b"gum")))
    with pytest.raises(DataError, match="cannot be unpacked"):
        assets.fetch(data=str(tmp_path / "data"), from_=str(bad))
    assets.fetch(data=str(tmp_path / "data"), from_=str(good))
    assert (tmp_path / "data" / game.relative_to(source)).read_bytes() == text


def test_a_damaged_deflated_archive_is_named(tmp_path, few):
    path = Path(shutil.make_archive(str(tmp_path / "a"), "zip", a_folder(tmp_path / "source")))
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 3, len(content) // 2):
        content[place] ^= 0x5A
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.zip cannot be unpacked into .* If it is damaged"):
        assets.fetch(data=str(tmp_path / "data"), from_=str(path))


def test_a_folder_that_is_whole_is_not_fetched_again(tmp_path, few):
    a_folder(tmp_path)
    assets.fetch(data=str(tmp_path), url="http://127.0.0.1:9/nobody")


def test_published_games_are_not_put_among_invented_ones(tmp_path, few):
    source = a_folder(tmp_path / "source")
    write_game(tmp_path / "data")
    (tmp_path / "data" / "generated.json").write_text('{"num_games": {"train": 1}}')
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", source)
    for given in (source, archive):
        with pytest.raises(DataError, match="holds invented games"):
            assets.fetch(data=str(tmp_path / "data"), from_=str(given))
    assert missing_games(tmp_path / "data") == ""
    assets.fetch(data=str(tmp_path / "copy"), from_=str(tmp_path / "data"))
    assert missing_games(tmp_path / "copy") == ""


def test_options_that_contradict_or_do_nothing_are_refused(tmp_path):
    with pytest.raises(DataError, match="Give one of the two"):
        assets.fetch(data=str(tmp_path), from_="a.zip", generate="2")
    for option, name in (("sizes", "sizes"), ("task_types", "task-types"), ("seed", "seed")):
        with pytest.raises(DataError, match=f"--{name} is of the games that --generate invents"):
            assets.fetch(data=str(tmp_path), **{option: "1"})


def test_a_data_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "a").touch()
    write_game(tmp_path)
    for folder, given in (("a", {"from_": str(tmp_path)}), ("a/b", {"generate": "1"})):
        with pytest.raises(DataError, match=r"cannot be written: .* Give a folder with --data"):
            assets.fetch(data=str(tmp_path / folder), **given)


@pytest.mark.parametrize("given", ["many", "0", "-3"])
def test_generate_wants_a_number_above_0(given, tmp_path):
    with pytest.raises(DataError, match=f"--generate is '{given}'. Give a whole number, 1 or"):
        assets.fetch(data=str(tmp_path), generate=given)


class _Server(http.server.SimpleHTTPRequestHandler):
    """Serves files, and the rest of a file that is asked for; breaks off the first answer."""

    breaks_off = True

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        whole = path.read_bytes()
        start = int(self.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(whole) - start))
        self.end_headers()
        is_cut, type(self).breaks_off = type(self).breaks_off, False
        self.wfile.write(whole[start : start + 100] if is_cut else whole[start:])

    def log_message(self, *_):
        pass


@pytest.fixture
def address(tmp_path, monkeypatch):
    """Serve the archives of a small folder."""
    monkeypatch.setenv("NO_PROXY", "*")
    served = archives_of(a_folder(tmp_path / "source"), tmp_path / "served")
    monkeypatch.setattr(_Server, "breaks_off", True)
    handler = functools.partial(_Server, directory=str(served))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_download_goes_on_where_it_was_cut_off(address, tmp_path, few):
    root = tmp_path / "data"
    with pytest.raises(DataError, match=r"cannot be fetched: .* Without a network"):
        assets.fetch(data=str(root), url=address)
    assert [path.stat().st_size for path in root.glob("*.part")] == [100]
    assets.fetch(data=str(root), url=address)
    assert assets.missing(data=str(root)) is None
    assert {split: len(rows(root, split)) for split in SPLITS} == COUNTS
    assert sorted(os.listdir(root)) == ["json_2.1.1", "logic"]


def test_an_address_without_the_archives_is_named(address, tmp_path, golden):
    with pytest.raises(DataError) as caught:
        assets.fetch(data=str(tmp_path / "data"), url=f"{address}/none")
    golden(str(caught.value), "alfworld_not_found", URL=address)
