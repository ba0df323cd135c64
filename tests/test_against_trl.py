"""The arithmetic of ``benchmarks/against_trl.py``; what it runs is no test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import against_trl

    yield against_trl
    for name in [name for name in sys.modules if name.split(".")[0] == "grpo_tasks"]:
        del sys.modules[name]
    del sys.modules["against_trl"]


def a_curve(benchmark, *, seconds_a_step):
    rewards = [0.0] * 10 + [1.0] * 10  # the mean of ten is 0.8 after step 18
    cpu_s = [5.0 + seconds_a_step * step for step in range(20)]
    return benchmark.Curve(startup_s=5.0, cpu_s=cpu_s, rewards=rewards)


def test_seconds_count_from_the_first_rewards_to_the_goal(benchmark):
    curve = a_curve(benchmark, seconds_a_step=2.0)

    assert curve.steps_until(0.8, window=10) == 18
    assert curve.seconds_until(0.8, window=10) == 34.0
    assert curve.seconds_until(1.1, window=10) is None


def test_the_table_compares_each_side_with_the_peer(benchmark):
    curves = {
        "trl": [a_curve(benchmark, seconds_a_step=2.0)],
        "local": [a_curve(benchmark, seconds_a_step=0.5)],
        "hand": [benchmark.Curve(rewards=[0.1] * 20, cpu_s=[1.0] * 20)],
    }

    rows = [line.split() for line in benchmark.table(curves).splitlines()[2:]]

    assert rows[0] == ["trl", "34.0", "1.00", "18", "2000.0", "1.00"]
    assert rows[1] == ["local", "8.5", "0.25", "18", "500.0", "0.25"]
    assert " ".join(rows[2]) == "hand not learned by every seed"


def test_the_better_of_the_peers_ways_is_what_counts(benchmark):
    curves = {
        "trl": [a_curve(benchmark, seconds_a_step=2.0)],
        "trl-plain": [a_curve(benchmark, seconds_a_step=1.0)],
        "local": [a_curve(benchmark, seconds_a_step=0.5)],
    }

    rows = [line.split() for line in benchmark.table(curves).splitlines()[2:]]

    assert [row[2] for row in rows] == ["2.00", "1.00", "0.50"]


def test_a_line_that_is_not_finished_is_left_for_the_next_look(benchmark, tmp_path):
    progress = tmp_path / "metrics.jsonl"
    progress.write_text('{"rollout/reward/mean": 0.5}\n{"actor/loss": 1}\n{"reward": 0.75}\n{"rew')

    assert benchmark.read_rewards(progress) == [0.5, 0.75]
