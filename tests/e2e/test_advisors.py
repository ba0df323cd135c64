"""An advisor speaks up in a run: it warns, ends the run, or goes back to the best checkpoint."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

ADVISORS = '''
from trinity.common.ports import Advice, Advisor
from trinity.extend import hookimpl


class Counting(Advisor):
    """Finds fault with the third optimizer step, as long as the learning rate is large."""

    def __init__(self, *, config):
        self._lr = config.algorithm.optimizer.lr

    def observe(self, seen):
        if seen.role != "trainer" or seen.step < 3 or self._lr < 1e-4:
            return None
        return Advice(
            seen=f"{len(seen.samples())} rows were trained in step {seen.step}",
            remedy="Lower the learning rate",
            samples=[row["eid"] for row in seen.samples()],
            settings={"algorithm.optimizer.lr": 1e-5},
        )


class Broken(Advisor):
    def observe(self, seen):
        raise ZeroDivisionError("no steps yet")


@hookimpl
def trinity_advisors():
    return {"counting": f"{__name__}:Counting", "broken": f"{__name__}:Broken"}
'''


@pytest.fixture
def advised(config_dict, taskset, plugin_dir, write_yaml):
    """Return a function that gives the arguments of a run of five steps."""
    config_dict["algorithm"]["optimizer"]["lr"] = 1e-3
    config_dict["buffer"]["total_steps"] = 5
    held_out = taskset | {"name": "held_out"}
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [held_out]
    config_dict["explorer"] |= {"eval_interval": 1}
    config_dict["trainer"] = {"save_interval": 1, "keep_best": {}}
    folder = plugin_dir(ADVISORS, "advisors_of_test.py")

    def arguments(**advisors: str) -> list[object]:
        return [
            "run", "--local", "--config", write_yaml(config_dict | {"advisors": advisors}),
            "--plugin-dir", folder,
        ]  # fmt: skip

    return arguments


def read(directory) -> dict:
    return json.loads((directory / "run.json").read_text())


def test_an_advisor_warns_once_over_two_starts_and_one_that_fails_ends_nothing(
    trinity, advised, run_dir
) -> None:
    first = trinity(*advised(), "--set", "buffer.total_steps=4")
    assert first.code == 0, first.stderr
    second = trinity(*advised())

    (finding,) = [one for one in read(run_dir)["findings"] if one["advisor"] == "counting"]
    line = f"advisor counting (trainer step 3): {finding['message']}. Lower the learning rate."
    assert finding["samples"][0].startswith("3/")
    shown = " ".join(first.stdout.split())
    assert f"{line} Samples: 3/" in shown
    assert shown.count(line) == 1
    assert line not in " ".join(second.stdout.split())
    assert line in " ".join(trinity("status", run_dir).stdout.split())
    log = (run_dir / "trinity.log").read_text()
    assert "the advisor broken failed and is asked no more: ZeroDivisionError" in log
    assert read(run_dir)["train_steps"] == 5


@pytest.mark.acceptance
def test_with_stop_the_run_ends_after_the_step(trinity, advised, run_dir) -> None:
    said = trinity(*advised(counting="stop", broken="off")).stdout

    assert read(run_dir)["status"], read(run_dir)["train_steps"] == ("finished", 3)
    assert "stopping early: advisor counting:" in said
    assert "broken" not in (run_dir / "trinity.log").read_text()


FLAKY = """
from pathlib import Path

from trinity.common.workflows import WORKFLOWS, Workflow


@WORKFLOWS.register_module("away_in_step_3")
class AwayInStep3(Workflow):
    def run(self):
        if str(self.task.batch_id).startswith("eval/3") and not Path("is_back").exists():
            raise RuntimeError("the server is away")
        (answer,) = self.model.chat([{"role": "user", "content": "hi"}])
        answer.reward = 1.0
        return [answer]
"""


def test_a_run_that_was_to_stop_and_failed_before_its_end_stops_there_when_started_again(
    trinity, advised, config_dict, plugin_dir, run_dir, tmp_path
) -> None:
    (held_out,) = config_dict["buffer"]["explorer_input"]["eval_tasksets"]
    held_out["default_workflow_type"] = "away_in_step_3"
    config_dict["explorer"] |= {"max_retry_times": 0}
    plugin_dir(FLAKY, "flaky.py")

    first = trinity(*advised(counting="stop"))
    (tmp_path / "is_back").touch()
    second = trinity(*advised(counting="stop"))

    assert (first.code, second.code) == (1, 0), first.stderr + second.stderr
    assert "the server is away" in first.stderr
    assert "stopping early: advisor counting:" in second.stdout
    assert (read(run_dir)["status"], read(run_dir)["train_steps"]) == ("finished", 3)


@pytest.mark.acceptance
def test_with_rollback_a_child_goes_on_from_the_best_checkpoint(trinity, advised, run_dir) -> None:
    first = trinity(*advised(counting="rollback"))
    assert first.code == 0, first.stderr
    child, before = run_dir / "rollback", sorted(run_dir.glob("global_step_*/state.json"))
    again = trinity(*advised(counting="rollback"))

    assert (read(run_dir)["train_steps"], read(child)["train_steps"]) == (3, 5)
    assert "going on from global_step_" in first.stdout
    rows = [json.loads(one) for one in (child / "monitor/metrics.jsonl").read_text().splitlines()]
    assert {row["step"]: row["actor/lr"] for row in rows if "actor/lr" in row}[5] == 1e-5
    assert "is finished" in again.stdout
    assert sorted(run_dir.glob("global_step_*/state.json")) == before


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"advisors": {"count": "warn"}}, "no advisor named 'count'"),
        ({"advisors": {"counting": "rollback"}, "trainer": {}}, "Set trainer.keep_best"),
        ({"advisors": {"counting": "shout"}}, "advisors.counting"),
    ],
)
def test_what_cannot_be_advised_is_said_before_the_run(
    trinity, advised, config_dict, settings, problem
) -> None:
    advised()
    config_dict |= settings
    said = trinity(*advised(**settings["advisors"]))

    assert said.code == 1
    assert problem in " ".join((said.stdout + said.stderr).split())
