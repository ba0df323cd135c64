"""A file that is opened and changed keeps what its author wrote beside the settings."""

from __future__ import annotations

import copy

import pytest
from trinity_studio.studio.document import Document, yaml_text
from trinity_studio.studio.kept_text import kept_text
from trinity_studio.studio.secrets import shown_text

from .test_studio_round_trip import FILES

AT_ONCE = [pytest.param(path, id=path.stem) for path in FILES[::40]]
LATER = [
    pytest.param(path, id=path.stem, marks=pytest.mark.acceptance)
    for path in FILES[::8]
    if path not in FILES[::40]
]
FILE = """# The run of Monday
project: "p"   # quoted
buffer:
  # two tasks
  batch_size: 2  # small
  explorer_input:
    tasksets:
    - path: a.jsonl  # first
      format: {prompt_key: q, response_key: a}
    - path: b.jsonl
  # the end of the buffer
# before the seed
seed: 7
"""


def changed(path: str, value: object) -> str:
    document = Document.read(FILE, name="")
    document.set(path, value)
    return kept_text(document.text, document.values)


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        ("buffer.batch_size", 5, "batch_size: 2  # small", "batch_size: 5  # small"),
        ("project", "on", 'project: "p"   # quoted', "project: 'on'   # quoted"),
        ("seed", None, "seed: 7", "seed: null"),
        ("buffer.explorer_input.tasksets.0.path", "c", "path: a.jsonl  #", "path: c  #"),
        ("buffer.explorer_input.tasksets.0.format.prompt_key", "x", "key: q,", "key: x,"),
        ("buffer.total_steps", 3, "- path: b.jsonl\n", "- path: b.jsonl\n  total_steps: 3\n"),
        ("name", "n", "seed: 7\n", "seed: 7\nname: n\n"),
        ("seed", {"a": [1]}, "seed: 7", "seed:\n  a:\n  - 1"),
    ],
)
def test_a_change_changes_its_place_and_no_other_letter(path, value, before, after) -> None:
    assert changed(path, value) == FILE.replace(before, after)


def test_comments_stand_beside_what_becomes_a_section() -> None:
    assert "batch_size:  # small\n    a: 1\n  explorer_input" in changed(
        "buffer.batch_size", {"a": 1}
    )


@pytest.mark.parametrize(
    ("value", "after"), [(5, "a: 5  # top\nb: 2\n"), ({"d": 1}, "a:  # top\n  d: 1\nb: 2\n")]
)
def test_a_section_that_goes_leaves_the_comment_beside_its_name(value, after) -> None:
    text = "a:  # top\n  c: 1  # of c\nb: 2\n"
    assert kept_text(text, {"a": value, "b": 2}) == after


LIST = """tasks:
# of school
- path: a  # easy
  name: first
- b   # hard
# the last
- c
seed: 1  # any
"""
A = {"path": "a", "name": "first"}


@pytest.mark.parametrize(
    ("tasks", "before", "after"),
    [
        ([A, "b", "c", "d"], "- c\n", "- c\n- d\n"),
        ([A, "b"], "- c\n", ""),
        ([A, "c"], "- b   # hard\n", ""),
        (["b", "c"], "- path: a  # easy\n  name: first\n", ""),
        (["z", A, "b", "c"], "- path: a  #", "- z\n- path: a  #"),
        ([A, {"x": [1]}, "q", "c"], "- b   # hard\n", "- x:\n  - 1\n- q\n"),
    ],
)
def test_an_entry_that_comes_or_goes_leaves_the_comments_of_the_others(
    tasks, before, after
) -> None:
    document = Document.read(LIST, name="")
    document.values["tasks"] = tasks

    assert kept_text(LIST, document.values) == LIST.replace(before, after, 1)


FLOW = """tasks: [
  a,  # easy
  'b',  # hard
  {path: c,  # the last
   seed: 1},
]  # all
other: [1, 2]
"""
C = {"path": "c", "seed": 1}


@pytest.mark.parametrize(
    ("tasks", "before", "after"),
    [
        (["a", "b, c", C], "'b'", "'b, c'"),
        (["a", "b", {**C, "seed": 7}], "seed: 1", "seed: 7"),
        (["a", "b", {**C, "more": "x: y"}], "seed: 1", "seed: 1, more: 'x: y'"),
        (["b", C], "a,  # easy\n  ", ""),
        (["a", "b"], "{path: c,  # the last\n   seed: 1},", ","),
        (["a", "x", "b", C], "a,  #", "a, x,  #"),
        (["z", "a", "b", C], "a,  #", "z, a,  #"),
        (["a", "b", {"path": "c"}], "{path: c,  # the last\n   seed: 1}", "{path: c}"),
    ],
)
def test_comments_within_brackets_stay_beside_the_entries_that_stay(tasks, before, after) -> None:
    kept = kept_text(FLOW, {"tasks": tasks, "other": [1, 2]})

    if after == ",":  # the comma behind the one before it ends the list
        assert "a,  # easy\n  'b',  # hard\n" in kept
        assert Document.read(kept, name="").values["tasks"] == tasks
    else:
        assert kept == FLOW.replace(before, after)


def test_a_key_without_a_value_can_be_given_one() -> None:
    assert kept_text("? a\n", {"a": 5}) == "a: 5\n"


def test_a_key_that_goes_takes_its_own_lines_and_leaves_the_comments_of_others() -> None:
    document = Document.read(FILE, name="")
    document.remove("buffer.explorer_input")

    kept = kept_text(document.text, document.values)

    assert "tasksets" not in kept
    assert "  # the end of the buffer\n# before the seed\nseed: 7\n" in kept
    assert "# two tasks\n  batch_size: 2  # small\n" in kept


def test_what_stands_under_an_anchor_is_written_without_comments_and_means_the_same() -> None:
    document = Document.read("a: &one {x: 1}  # note\nb: *one\n", name="")
    document.set("a.x", 2)

    assert kept_text(document.text, document.values) == yaml_text({"a": {"x": 2}, "b": {"x": 1}})


@pytest.mark.parametrize("path", AT_ONCE + LATER)
def test_each_key_of_a_file_can_be_changed_taken_away_and_added(path) -> None:
    text = path.read_text()
    document = Document.read(text, name=path.name)
    assert kept_text(text, document.values) == text
    for key in [*document.values][:3]:
        for how in ("change", "remove", "add"):
            values = copy.deepcopy(document.values)
            if how == "change":
                values[key] = {"x": [1, "two\nlines\n"]}
            elif how == "remove":
                del values[key]
            else:
                values = {**values, "added": {"x": values[key]}}
            assert Document.read(kept_text(text, values), name="").values == values


def test_comments_show_no_secret_on_the_page() -> None:
    text = "model: {api_key: hush-hush-1}  # hush-hush-1\n# old_api_key: hush-hush-2\nseed: 1\n"
    document = Document.read(text, name="")

    shown = shown_text(text, document.values)

    assert "hush" not in shown
    assert "# old_api_key: ****" in shown
    assert kept_text(text, document.values) == text


def test_a_secret_that_was_replaced_is_not_shown_where_a_comment_says_it() -> None:
    text = "model: {api_key: hush-hush-1}  # it was hush-hush-1\n"
    document = Document.read(text, name="")
    document.set("model.api_key", "another-one")

    assert "hush" not in shown_text(text, document.values)
