"""Samples of evaluations, the same tasks of several runs, search, groups that teach nothing."""

from __future__ import annotations

import json

import pytest
from trinity.common.experience import EID
from trinity.runtime.record.evaluation_samples import EvaluationLog
from trinity_studio.view import search as searching
from trinity_studio.view.reward_groups import reward_groups

from .conftest import Built, a_row, words


def evaluated(path, *, step: int, rewards: dict[int, tuple[float, ...]], prompt: int = 1) -> None:
    rows = [
        a_row(run, tokens=[0, prompt, 2 + int(reward), 2], reward=reward,
              eid=EID(batch="e", task=task, run=run))
        for task, own in rewards.items()
        for run, reward in enumerate(own)
    ]  # fmt: skip
    EvaluationLog(path, limit=10**7, is_bench=False).evaluated(step, "held out", rows)


def test_the_samples_of_an_evaluation_are_shown_by_task(built, browse) -> None:
    evaluated(built.path, step=10, rewards={0: (0, 0), 1: (0, 1), 2: (1, 1)})
    line = {"step": 10, "role": "explorer", "eval/held out/reward/mean@2": 0.5}
    built.metrics(line | {"step": 5, "eval/held out/reward/mean@2": 0.25}, line)
    page = browse(built.path)

    assert "held out 10 0.5" in page.text("evaluations")
    said = page.text("evaluations/0")
    assert "held out after step 10" in said
    assert "3 of 3 tasks, mean reward 0.5" in said
    assert said.count("say") == 3  # the prompt once a task
    assert "1 of 3 tasks" in page.text("evaluations/0?only=mixed")
    assert "1 of 3 tasks" in page.text("evaluations/0?only=wrong")
    assert "2 of 3 tasks" in page.text("evaluations/0?q=b")
    assert "no longer kept" in page.text("evaluations/7")


def test_a_task_with_one_right_rollout_was_rewarded_also_where_wrong_ones_cost(
    built, browse
) -> None:
    evaluated(built.path, step=10, rewards={0: (-1, -1, 1), 1: (-1, 0, -1), 2: (1, 1, 1)})
    page = browse(built.path)

    assert "1 of 3 tasks" in page.text("evaluations/0?only=wrong")
    assert "2 of 3 tasks" in page.text("evaluations/0?only=right")


def test_a_damaged_evaluation_is_told(built, browse) -> None:
    evaluated(built.path, step=10, rewards={0: (0, 1)})
    (path,) = (built.path / "evaluations").rglob("*.bin")
    path.write_bytes(path.read_bytes()[:-3])

    assert "0 of 0 tasks" in browse(built.path).text("evaluations/0")


def test_the_same_tasks_of_several_runs_stand_side_by_side(built, browse, tmp_path) -> None:
    other = Built(tmp_path / "p" / "other")
    other.path.mkdir()
    other.status()
    words(other.path, {"<s>": 0, "say": 1, "a": 2, "b": 3})
    evaluated(built.path, step=10, rewards={0: (0, 0), 1: (1, 1)})
    evaluated(other.path, step=20, rewards={0: (1, 1), 1: (1, 1), 2: (0, 0)})
    page = browse(built.path, other.path)

    both, different = page.text("/compare/samples"), page.text("/compare/samples?only=differ")

    assert "2 tasks, as the last evaluation of each run answered them" in both
    assert "rft step 10 mean 0" in both
    assert "other step 20 mean 1" in both
    assert "1 tasks" in different


def test_tasks_of_other_files_are_not_taken_for_the_same(built, browse, tmp_path) -> None:
    other = Built(tmp_path / "p" / "other")
    other.path.mkdir()
    other.status()
    evaluated(built.path, step=10, rewards={0: (0, 0)})
    evaluated(other.path, step=10, rewards={0: (0, 0)}, prompt=3)

    assert "No task has the same prompt" in browse(built.path, other.path).text("/compare/samples")


def test_a_text_is_found_in_prompts_and_replies_and_nowhere_else(built, browse) -> None:
    built.rollouts(a_row(7, response_text="the shop is closed\nfor \u00fcbermorgen"),
                   a_row(8, info={"note": "the shop is closed"}))  # fmt: skip
    page = browse(built.path)

    said = page.text("search?q=shop+is+closed")

    assert "rollout 7" in said
    assert "rollout 8" not in said
    assert "That is all." in said
    assert "rollout 7" in page.text("search?q=%C3%BCbermorgen")
    assert "Nothing says it" in page.text("search?q=The+shop")


def test_a_search_goes_on_where_its_time_was_over(tmp_path, monkeypatch) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"eid": {"run": 0}, "prompt_text": "x", "response_text": "found"}
    path.write_text("".join(json.dumps(row | {"eid": {"run": n}}) + "\n" for n in range(70)))
    monkeypatch.setattr(searching, "PATIENCE_S", 60)

    first = searching.search(path, "found")
    second = searching.search(path, "found", start=first.next)
    third = searching.search(path, "found", start=second.next)

    numbers = [row["eid"]["run"] for one in (first, second, third) for row in one.rows]
    assert numbers == list(range(70))
    assert third.next is None
    assert 0.4 < first.share < 0.5


def test_a_page_says_how_many_groups_teach_nothing(built, browse) -> None:
    for task, rewards in enumerate([(0, 0), (1, 1), (0, 1)]):
        built.samples(3 + task, [
            a_row(run, batch=3, task=task, reward=float(reward))
            for run, reward in enumerate(rewards)
        ])  # fmt: skip

    assert "1 groups, 1 of them dead" in browse(built.path).text("step/3")
    assert "1 groups, 0 of them dead" in browse(built.path).text("step/5")


def test_groups_are_counted_by_their_mean_reward() -> None:
    class One:
        def __init__(self, task, run, reward):
            self.task, self.run, self.reward = task, run, reward

    groups = reward_groups([One("a", "0", 0.0), One("a", "1", 1.0), One("b", "0", 1.0),
                            One("b", "1", 1.0), One("c", "0", 0.5)])  # fmt: skip

    assert (groups.count, groups.dead) == (2, 1)  # one rollout alone is no group
    assert [(low, count, dead) for low, _, count, dead in groups.table if count] == [
        (pytest.approx(0.5), 1, 0),
        (pytest.approx(11 / 12), 1, 1),
    ]


def test_why_nothing_was_trained_is_said_once_a_group(built, browse) -> None:
    built.samples(3, [a_row(run, batch=3, advantages=[0.0, 0.0]) for run in range(4)])

    assert browse(built.path).text("step/3").count("all advantages are 0") == 1
