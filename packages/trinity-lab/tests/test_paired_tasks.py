"""``trinity compare``: which tasks of two runs are the same."""

from __future__ import annotations

import json

import pytest
from trinity.common.experience import EID
from trinity.runtime.record.evaluation_samples import EvaluationLog
from trinity_lab.outcomes import read_outcome
from trinity_testing.builders import an_experience

VALUES = [0.1, 0.5, 0.9, 0.3]
GSM8K = {"path": "openai/gsm8k", "split": "test", "subset_name": "main"}


def test_several_groups_of_a_task_are_one_task_whose_last_row_counts(a_run) -> None:
    """As the run's own metric has it; agents with adapters of their own have a group each."""
    folder = a_run("a", 0.5)
    rows = [
        an_experience(reward=reward, eid=EID(batch="eval", task=f"{task}-{agent}", run=run))
        for task in range(2)
        for run in range(2)
        for agent, reward in (("solver", 9.0), ("checker", float(run)))
    ]
    EvaluationLog(folder, limit=10**6, is_bench=False).evaluated(4, "held_out", rows)

    tasks = read_outcome(folder).tasks
    assert {number: value for (number, _), value in tasks.items()} == {"0": 0.5, "1": 0.5}


def test_runs_on_the_same_tasks_are_paired(call, a_run) -> None:
    tasks = [0.1, 0.5, 0.9, 0.3]
    runs = [
        a_run("a", 0.45, policy_loss_fn="ppo", tasks=tasks),
        a_run("b", 0.55, policy_loss_fn="gspo", tasks=[value + 0.1 for value in tasks]),
    ]

    found = json.loads(call("compare", *runs, "--json").stdout)
    said = call("compare", *runs).stdout

    [pair] = found["differences"]
    assert pair["p_tasks"] == pytest.approx(2 / 16)  # the four signs alike
    assert pair["p"] == 1.0
    assert not pair["is_distinguishable"]
    assert "it says nothing about other seeds" in said
    assert "one seed says nothing about the spread of seeds" in said


@pytest.fixture
def paired(call, a_run):
    """Return a function that compares two runs by their evaluation sets: p, tasks and notes."""

    def compared(first: dict[str, str], second: dict[str, str], *roots: str):
        given = zip("ab", ("ppo", "gspo"), (first, second), roots or ("", ""), strict=True)
        runs = [
            a_run(
                name,
                0.45,
                policy_loss_fn=loss,
                tasks=[value + (name == "b") / 10 for value in VALUES],
                held_out=held_out,
                root=root,
                first_token=ord(name),  # another system prompt
            )
            for name, loss, held_out, root in given
        ]
        found = json.loads(call("compare", *runs, "--json").stdout)
        [pair] = found["differences"]
        return pair["p_tasks"], pair["num_tasks"], found["notes"], call("compare", *runs).stdout

    return compared


@pytest.mark.parametrize("held_out", [GSM8K, {"path": "/data/held_out.jsonl"}])
def test_runs_on_one_file_are_paired_whatever_their_prompts(paired, held_out) -> None:
    """Another system prompt, model or template is what is compared."""
    p, num_tasks, notes, said = paired(held_out, held_out)

    assert (p, num_tasks, notes) == (2 / 16, 4, [])
    assert "paired over 4 tasks: p = 0.125" in said


@pytest.mark.parametrize(
    "second",
    [{"split": "test[50%:]"}, {"subset_name": "socratic"}, {"path": "openai/gsm8k-platinum"}],
)
def test_tasks_of_other_files_are_not_paired_and_the_note_counts_them(paired, second) -> None:
    """Half of a file and the other half have the same numbers."""
    p, num_tasks, notes, said = paired(GSM8K, GSM8K | second)

    note = (
        "note: 4 of 4 tasks are not the same in all runs (another path, split or subset_name of "
        "the evaluation set, or no rollout); two arms are paired over those that are"
    )
    assert (p, num_tasks, notes) == (None, 0, [note])
    assert "on these tasks" not in said
    assert note in said


def test_a_relative_path_counts_from_where_its_run_was_started(paired, tmp_path) -> None:
    relative, whole = {"path": "data/x.jsonl"}, {"path": str(tmp_path / "one/data/x.jsonl")}

    assert paired(relative, whole, "one/runs", "two/runs")[:2] == (2 / 16, 4)


def test_a_relative_path_of_another_working_directory_is_another_file(paired) -> None:
    relative = {"path": "data/x.jsonl"}

    assert paired(relative, relative, "one/runs", "two/runs")[:2] == (None, 0)


def test_tasks_pair_by_number_where_a_run_does_not_say_their_file(call, a_run) -> None:
    runs = [
        a_run("a", 0.45, policy_loss_fn="ppo", tasks=VALUES),
        a_run("b", 0.55, policy_loss_fn="gspo", tasks=[v + 0.1 for v in VALUES]),
    ]
    (runs[1] / "config.yaml").unlink()

    found = json.loads(call("compare", *runs, "--json").stdout)

    [pair] = found["differences"]
    assert (pair["num_tasks"], pair["p_tasks"]) == (4, 2 / 16)
    assert found["notes"] == [
        f"note: config.yaml does not say which file the tasks are of in {runs[1]}; tasks are "
        "paired by their numbers alone"
    ]


def test_a_mean_lies_in_its_interval_where_a_run_has_fewer_tasks(call, a_run) -> None:
    runs = [
        a_run("a", 0.5, tasks=[1.0, 0.0]),
        a_run("b", 1.0, seed=1, tasks=[1.0, None]),
        a_run("c", 0.2, policy_loss_fn="gspo", tasks=[0.2, 0.2]),
        a_run("d", 0.3, policy_loss_fn="gspo", seed=1, tasks=[0.3, 0.3]),
    ]

    found = json.loads(call("compare", *runs, "--json").stdout)

    arm, (pair,) = found["arms"][0], found["differences"]
    assert arm["mean"] == 0.75
    assert arm["interval"] == pytest.approx([0.0, 1.0])
    assert pair["num_tasks"] == 1
    assert pair["interval"][0] <= pair["value"] <= pair["interval"][1]
    assert found["notes"][0].startswith("note: 1 of 2 tasks are not the same in all runs")
    assert ", 1 to 2 tasks;" in call("compare", *runs).stdout
