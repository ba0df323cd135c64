"""A run says at its end which chats of its API clients did not go on, where those are many."""

from trinity.monitor.jsonl import JsonlMonitor
from trinity.runtime.record.chats import broken_chats


def written(folder, *steps):
    monitor = JsonlMonitor(directory=folder, role="explorer")
    for step, metrics in enumerate(steps, start=1):
        monitor.log(metrics, step=step)
    monitor.close()
    return broken_chats(folder)


def test_a_run_with_many_broken_chats_says_why(tmp_path, golden):
    steps = [
        {"rollout/api/continued/sum": 6.0, "rollout/api/broken_reasoning_dropped/sum": 5.0},
        {"rollout/api/broken_reasoning_dropped/sum": 3.0, "rollout/api/broken_edited/sum": 1.0},
    ]
    golden(written(tmp_path, *steps), "chats_broken")  # 6 of 15 are 40 %


def test_nine_in_ten_are_enough(tmp_path):
    step = {"rollout/api/continued/sum": 9.0, "rollout/api/broken_edited/sum": 1.0}

    assert written(tmp_path, step) == ""


def test_a_run_without_such_chats_says_nothing(tmp_path):
    assert written(tmp_path, {"rollout/reward/mean": 1.0}) == ""
