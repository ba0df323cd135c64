"""A run cuts its files back and goes on: what is shown is what the files hold now."""

from __future__ import annotations

import json
import shutil

import pytest
from trinity_studio.view import rollouts
from trinity_studio.view.metrics_file import MetricsFile
from trinity_studio.view.rollouts import Rollouts
from trinity_studio.view.trained import Trained

from .conftest import a_row


def samples_of(built, steps) -> bytes:
    shutil.rmtree(built.path / "samples", ignore_errors=True)
    for step, reward in steps:
        built.samples(step, [a_row(batch=step, reward=reward)])
    (path,) = (built.path / "samples").iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("rewards", [(0.25, 0.5), (0.125, 0.375)])  # as long as before, and longer
def test_samples_that_were_cut_back_and_grew_again_are_found_anew(built, rewards, is_live) -> None:
    samples_of(built, [(1, 0.5), (2, 0.75), (3, 0.25)])
    trained = Trained(built.path)
    trained.follow(is_live=lambda: is_live)

    samples_of(built, [(1, 0.5), (2, rewards[0]), (3, rewards[1]), (4, 0.5)])
    trained.follow(is_live=lambda: is_live)

    found = [trained.step(step) for step in trained.steps]
    assert [problem for _, problem in found] == [""] * 4
    assert [samples[0].reward for samples, _ in found] == [0.5, *rewards, 0.5]
    assert trained.problems == []


def test_a_torn_end_that_was_cut_off_and_grew_again_is_no_problem(built) -> None:
    samples_of(built, [(1, 0.5), (2, 0.75)])
    (path,) = (built.path / "samples").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    trained = Trained(built.path)
    trained.follow(is_live=lambda: False)
    assert (trained.steps, len(trained.problems)) == ([1], 1)

    samples_of(built, [(1, 0.5), (2, 0.25), (3, 0.5)])
    trained.follow(is_live=lambda: False)

    assert (trained.steps, trained.problems) == ([1, 2, 3], [])


def lines(values, *, role="explorer") -> str:
    rows = [{"step": step, "role": role, "reward": value} for step, value in values]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("again", [[(2, 0.25)], [(2, 0.125)], [(2, 0.125), (3, 0.5)]])
def test_metrics_that_were_cut_back_and_grew_again_are_read_anew(again, tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines([(1, 0.25), (2, 0.75)]))
    metrics = MetricsFile(path)
    metrics.follow()

    path.write_text(lines([(1, 0.25), *again]))
    metrics.follow()

    assert metrics.series("reward") == [(1, 0.25), *again]
    assert metrics.num_damaged == 0


def test_metrics_that_only_grew_are_not_read_twice(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    for step in range(1, 400):
        with path.open("a") as file:
            file.write(lines([(step, 0.5)]))
        metrics.follow()

    assert [row["step"] for row in metrics.rows] == list(range(1, 400))


@pytest.mark.parametrize("chunk", [50, 2 << 20])
@pytest.mark.parametrize("replies", [("xx", "y"), ("xx", "y" * 9), ("xxxx", "y" * 2000)])
def test_rollouts_that_were_cut_back_and_grew_again_are_found_anew(
    replies, chunk, built, monkeypatch
) -> None:
    monkeypatch.setattr(rollouts, "_CHUNK", chunk)
    path = built.path / "buffer" / "explorer_output.jsonl"
    path.unlink()
    built.rollouts(a_row(response_text="a"), a_row(batch=2, response_text="bb"))
    found = Rollouts(path)
    assert found.follow()

    path.unlink()
    built.rollouts(a_row(response_text="a"))
    built.rollouts(
        *[a_row(batch=3 + place, response_text=one) for place, one in enumerate(replies)]
    )
    assert found.follow()

    assert found.tasks() == [("1", "0"), ("3", "0"), ("4", "0")]
    said = [found.read(batch, "0")[0]["response_text"] for batch in ("3", "4")]
    assert said == list(replies)
    assert found.num_damaged == 0
