"""Games whose text is made to harm: too much, endless, or no text. Refused once, by their file."""

from __future__ import annotations

import json
import re
import time

import pytest
from tiny_game import GOAL, a_game, write_game
from trinity.errors import BadTaskError, DataError
from trinity_envs_alfworld.env import create_environment
from trinity_envs_alfworld.games import rows

INTRO = "-= Welcome to TextWorld, ALFRED! =-"
LOOK = 'template :: "look"'
DEEP = 5_000
SEARCH = " & ".join(f"receptacleatlocation(r{n}:receptacle, l{n}:location)" for n in range(12))


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def refusal(request, tmp_path, begin_here):
    """Return a function: what is said of a game with this replaced, whose runs are not retried."""

    def of(before, after, *, part="grammar"):
        game = a_game()
        assert before in game[part]
        return of_game({**game, part: game[part].replace(before, after, 1)})

    def of_game(game):
        path = write_game(tmp_path)
        path.write_text(json.dumps(game))
        with pytest.raises(BadTaskError) as caught:
            begin_here(path, fast=request.param)
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 1500
        return str(caught.value)

    of.game = of_game
    return of


def test_a_megabyte_of_text_was_cut_off_in_the_log_and_not_for_the_trainer(refusal):
    assert "more than 50,000 characters" in refusal(INTRO, "word " * 200_000)


def test_an_admissible_command_of_a_megabyte_was_shown_to_the_model(refusal):
    assert "command" in refusal(LOOK, f'template :: "look {"x" * 1_000_000}"')


@pytest.mark.parametrize("hidden", [r"\x7b{}\x7d", r"\u007b{}\u007d", r"\173{}\175"])
@pytest.mark.parametrize("field", ["agent1.__class__.__mro__", "agent1:200000000", "agent1!r", "0"])
def test_braces_in_a_quoted_text_were_formatted(hidden, field, refusal):
    said = refusal(LOOK, f"template :: \"look {{'{hidden.format(field)}'}}\"")
    assert f"{{{field}}}" in said


def test_braces_in_the_name_of_a_thing_were_formatted(refusal):
    game = a_game()
    problem = game["pddl_problem"].replace("agent1", "agent{agent1.__class__}")
    grammar = game["grammar"].replace('template :: "inventory"', 'template :: "inventory {a.id}"')
    assert "{agent" in refusal.game({**game, "pddl_problem": problem, "grammar": grammar})


@pytest.mark.parametrize(
    "rules",
    [
        {"look.feedback": [{"rhs": "again #look.feedback#"}]},
        {"look.feedback": [{"rhs": "#b#"}], "b": [{"rhs": "{#look.feedback#}"}]},
        {f"x{n}": [{"rhs": f"#x{n + 1}##x{n + 1}#"}] for n in range(40)}
        | {"look.feedback": [{"rhs": "#x0#"}], "x40": [{"rhs": "ha"}]},
        {"look.feedback": [{"rhs": "#x#" * 3000}], "x": [{"rhs": "word " * 20_000}]},
        {"look.feedback": [{"rhs": f"[{{r0.name | {SEARCH}}}]"}]},
        {"look.feedback": [{"rhs": "so", "condition": f"{SEARCH} & openable(l0:location)"}]},
    ],
    ids=["itself", "each other", "doubling", "much text", "a list of all", "a search"],
)
def test_an_endless_grammar_took_a_minute_and_gigabytes_a_reset(rules, refusal):
    grammar = a_game()["grammar"]
    grammar += f'\ngrammar :: """{json.dumps(rules)}""";\n'
    began = time.monotonic()
    said = refusal.game({**a_game(num_shelves=12), "grammar": grammar})
    assert "no end" in said or "more than 50,000" in said
    assert time.monotonic() - began < 20


def test_json_of_great_depth_was_a_recursion_error_without_a_file(tmp_path, refusal):
    path = write_game(tmp_path, trial=1)
    path.write_text("[" * DEEP + "]" * DEEP)
    with pytest.raises(BadTaskError, match=r"game\.tw-pddl cannot be played: .* nested too dee"):
        create_environment(path)
    with pytest.raises(DataError, match=r"game\.tw-pddl cannot be read: it is nested too deeply"):
        rows(tmp_path, "train")
    path.with_name("traj_data.json").write_text('{"a":' * DEEP + "1" + "}" * DEEP)
    with pytest.raises(DataError, match=r"traj_data\.json cannot be read: it is nested too deeply"):
        rows(tmp_path, "train")
    assert "RecursionError" in refusal('"intro": [', '"intro": [' + "[" * DEEP + "]" * DEEP + ",")


@pytest.mark.parametrize("part", ["pddl_domain", "pddl_problem", "grammar"])
def test_a_lone_surrogate_in_a_file_was_a_type_error_without_a_file(part, tmp_path):
    game = a_game()
    path = write_game(tmp_path)
    path.write_text(json.dumps({**game, part: game[part] + "\n;# \ud800"}))
    with pytest.raises(BadTaskError, match=rf"its {part} holds \\ud800"):
        create_environment(path)


@pytest.mark.parametrize("hidden", [r"\ud800", r"{'\\ud800'}"])
def test_a_lone_surrogate_in_a_text_was_a_type_error_without_a_file(hidden, refusal):
    assert r"\ud800" in refusal(INTRO, hidden)


def test_a_goal_that_is_always_true_was_called_unreachable(refusal):
    always = "(:goal (and (openable {})))".format(
        re.search("Drawer_bar_[^ ]*", a_game()["pddl_problem"])[0]
    )
    from_the_start = "(:goal (and (exists (?o - object) (objectType ?o MugType))))"
    never = GOAL.replace("DeskType", "MugType")
    for goal in (always, from_the_start):
        assert "its goal is true before the first command" in refusal.game(a_game(goal=goal))
    assert "no commands can reach its goal" in refusal.game(a_game(goal=never))
