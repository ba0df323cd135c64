"""What the page keeps of a file: each value, where it stands, and nothing more."""

from __future__ import annotations

import pytest
from trinity.errors import ConfigError
from trinity_studio.studio.document import NOTHING, Document, merged, parsed, yaml_text


def test_a_value_is_put_where_its_path_says_and_sections_are_made_on_the_way() -> None:
    document = Document()

    document.set("buffer.explorer_input.tasksets.0.path", "rows.jsonl")
    document.set("buffer.explorer_input.tasksets.1.path", "more.jsonl")

    sets = [{"path": "rows.jsonl"}, {"path": "more.jsonl"}]
    assert document.values == {"buffer": {"explorer_input": {"tasksets": sets}}}


def test_taking_the_last_key_of_a_section_away_takes_the_section_too() -> None:
    document = Document({"a": {"b": {"c": 1}}, "d": 2})

    document.remove("a.b.c")

    assert document.values == {"d": 2}
    assert document.get("a.b.c") is NOTHING


def test_an_entry_of_a_list_stays_when_its_last_key_goes() -> None:
    document = Document({"sets": [{"path": "x"}, {"path": "y"}]})

    document.remove("sets.0.path")

    assert document.values == {"sets": [{}, {"path": "y"}]}


def test_what_stands_under_an_anchor_is_changed_where_it_is_changed_and_nowhere_else() -> None:
    document = Document.read("a: &one {x: 1}\nb: *one\n", name="anchors.yaml")

    document.set("a.x", 2)

    assert document.values == {"a": {"x": 2}, "b": {"x": 1}}


@pytest.mark.parametrize(
    "value",
    [
        "1e-6",
        "007",
        "1_000",
        "on",
        "null",
        "",
        "a: b",
        "# no comment",
        "two\nlines\n",
        "\ttab",
        " x ",
    ],
)
def test_a_text_that_looks_like_something_else_is_read_back_as_that_text(value) -> None:
    written = yaml_text({"value": value})

    assert Document.read(written, name="").values == {"value": value}


@pytest.mark.parametrize("value", [1e-6, 0, -3, True, None, [1, [2]], {"a": {"b": []}}, 2**70, 0.1])
def test_other_values_are_read_back_as_they_were(value) -> None:
    assert Document.read(yaml_text({"value": value}), name="").values == {"value": value}


def test_a_text_that_is_no_yaml_is_refused_with_a_reason() -> None:
    with pytest.raises(ConfigError, match="is no YAML"):
        parsed("[1, 2")


def test_of_two_settings_the_upper_one_wins_key_by_key() -> None:
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}}
