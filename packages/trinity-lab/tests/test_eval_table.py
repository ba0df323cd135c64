"""The table that `trinity eval` prints."""

from __future__ import annotations

import pytest
from trinity_lab.eval_command import _echo
from trinity_lab.models import Model
from trinity_lab.pass_at_k import Score
from trinity_lab.statistics import Interval

NAMES = ("mean@4", "pass@1", "pass@2", "pass@4")


def a_row(label: str, *names: str):
    interval = Interval(low=0.25, high=0.75)
    scores = [Score(name=name, value=0.5, interval=interval) for name in names]
    model = Model(label=label, path=label, checkpoint=None, run=None, settings={})
    return model, None, scores


@pytest.fixture
def printed(capsys):
    def lines(*rows) -> list[str]:
        _echo(rows, heading="tasks.jsonl")
        return capsys.readouterr().out.splitlines()[2:]

    return lines


def test_scores_stand_beside_each_other_where_there_is_room(printed) -> None:
    assert printed(a_row("gpt2", "mean@1")) == [
        "model  mean@1",
        "gpt2   0.500 (0.250 to 0.750)",
    ]


def test_the_scores_of_four_rollouts_stand_below_each_other_within_80_columns(printed) -> None:
    lines = printed(a_row("addition/global_step_40", *NAMES), a_row("gpt2", *NAMES))

    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[:2]] == [
        ["score", "model", "value", "interval"],
        ["mean@4", "addition/global_step_40", "0.500", "(0.250", "to", "0.750)"],
    ]
    assert [line.split()[:2] for line in lines[1:]] == [
        [name, label] for name in NAMES for label in ("addition/global_step_40", "gpt2")
    ]
