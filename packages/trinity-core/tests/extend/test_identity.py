"""Two plugin sets have one digest when they are equal, and only then."""

from __future__ import annotations

import os
from pathlib import Path

from trinity.extend import identity


def test_the_digest_is_the_same_for_the_same_plugins(dull):
    assert dull.discover().digest() == dull.discover().digest()


def test_the_digest_changes_with_a_source_line(dull):
    before = dull.discover().digest()
    with (dull.path / "trinity_dull_dull.py").open("a") as file:
        file.write("# another line\n")
    assert dull.discover().digest() != before


def test_the_digest_changes_with_a_plugin_that_is_left_out(dull):
    assert dull.discover(disabled=["dull"]).digest() != dull.discover().digest()


def test_the_digest_of_a_wheel_follows_its_own_record(site, dull_source):
    site.plugin("dull", dull_source, extra={"RECORD": "a.py,sha256=1,1\n"})
    before = site.discover().digest()
    site.plugin("dull", dull_source, extra={"RECORD": "a.py,sha256=2,1\n"})
    assert site.discover().digest() != before


def test_the_digest_of_a_folder_does_not_depend_on_where_it_lies(site, tmp_path):
    digests = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("VALUE = 1\n")
        digests.add(site.discover(plugin_dirs=[tmp_path / name]).digest())
    assert len(digests) == 1


def test_the_header_names_what_is_in_use_and_what_is_not(dull):
    dull.plugin("bar", "1 / 0")
    assert dull.discover().header() == "plugins: dull (1.0); bar is broken"


def test_sources_are_read_once_in_a_process(dull, monkeypatch):
    manager = dull.discover()
    first = manager.digest()
    read = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or b"")

    assert manager.digest() == first
    assert manager.describe()[0]["source_hash"]
    assert read == []


def test_a_source_that_keeps_size_and_time_but_not_its_content_is_read_again(site, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("VALUE = 1\n")
    stat = file.stat()
    before = site.discover(plugin_dirs=[tmp_path]).digest()
    file.write_text("VALUE = 2\n")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert site.discover(plugin_dirs=[tmp_path]).digest() != before


def test_a_source_that_vanishes_while_it_is_read_is_looked_at_again(site, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("VALUE = 1\n")
    plugins = site.discover(plugin_dirs=[tmp_path])
    digest, stamp, looks = plugins.digest(), identity._stamp, []

    def vanishing(file: str) -> tuple[int, int, int, int]:
        looks.append(file)
        return stamp(file if len(looks) > 1 else f"{file}.gone")

    monkeypatch.setattr(identity, "_stamp", vanishing)

    assert plugins.digest() == digest
    assert len(looks) == 2


def test_sources_that_never_stay_are_missing_and_no_error(site, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("VALUE = 1\n")
    plugins = site.discover(plugin_dirs=[tmp_path])
    stamp = identity._stamp
    monkeypatch.setattr(identity, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(identity, "_stamp", lambda file: stamp(f"{file}.gone"))

    assert [row["source_hash"] for row in plugins.describe()] == ["missing"]
