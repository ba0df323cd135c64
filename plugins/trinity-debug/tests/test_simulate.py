"""Simulated runs: the run's own schedule on a virtual clock, with numbers worked out by hand."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from trinity.cli.main import app
from trinity.common.config import Config
from trinity.common.sync_policy import policy_of
from trinity.errors import ConfigError
from trinity_debug.recorded_times import recorded_times
from trinity_debug.simulate import Candidate, Simulation, best_of, setup_of
from trinity_debug.simulated_engines import Engines, Seconds
from trinity_debug.simulated_run import Outcome, Setup, simulated
from typer.testing import CliRunner

STEPS = 20
SETUP = Setup(
    style="fixed",
    groups=8,
    rows=4,
    requests=4,
    train_rows=32,
    steps=STEPS,
    engines=4,
    slots=8,
    rollout=Seconds(mean=10.0),
    train=Seconds(mean=5.0),
    sync=Seconds(mean=1.0),
)


@pytest.mark.parametrize(
    ("style", "settings", "seconds"),
    [
        ("fixed", {}, STEPS * (10 + 5 + 1)),
        # A step is trained beside the next one; between two there is a sync.
        ("fixed", {"offset": 1}, 10 + 19 * (10 + 1) + 5 + 1),
        # The second step begins before anything was trained: one sync less.
        ("explorer_driven", {}, 10 + 10 + 18 * (10 + 1) + 5 + 1),
        # Weights move during rollouts.
        ("trainer_driven", {}, 10 * STEPS + 5 + 1),
        ("fully_async", {}, 10 * STEPS + 5 + 1),
        # Half of the slots: two waves of rollouts.
        ("fixed", {"engines": 2}, STEPS * (20 + 5 + 1)),
        ("fully_async", {"engines": 2}, 20 * STEPS + 5 + 1),
        # Sides that share cores gain nothing: 5 s of training take 10, the rest of a step 5.
        ("fixed", {"offset": 1, "shared": 0.5}, 10 + 19 * (15 + 1) + 5 + 1),
        # Rollouts are cut after 8 s, and 2 s go by around them; a tool takes 30.
        ("fixed", {"most_s": 8.0, "around": Seconds(mean=2.0)}, STEPS * (10 + 5 + 1)),
        ("fixed", {"tool": Seconds(mean=30.0)}, STEPS * (40 + 5 + 1)),
        # One call of a workflow makes a group's rollouts: 8 calls for 8 slots.
        ("fixed", {"requests": 1, "engines": 1}, STEPS * (10 + 5 + 1)),
        # In one process nothing overlaps.
        ("trainer_driven", {"in_turns": True}, STEPS * (10 + 5 + 1)),
    ],
)
def test_a_run_takes_what_follows_from_its_style(style, settings, seconds) -> None:
    outcome = simulated(replace(SETUP, style=style, **settings))

    assert outcome.seconds == pytest.approx(seconds)
    assert outcome.train_steps == STEPS
    assert outcome.rows == STEPS * 32
    assert outcome.rows_per_s == pytest.approx(STEPS * 32 / seconds)


def test_each_side_is_idle_while_it_has_nothing_to_do() -> None:
    """In turns, of 16 s engines work 10 and the trainer 5; half of the slots have nothing."""
    outcome = simulated(replace(SETUP, engines=8))

    assert outcome.engines_idle == pytest.approx(1 - 0.5 * 10 / 16)
    assert outcome.trainer_idle == pytest.approx(1 - 5 / 16)


@pytest.mark.parametrize(
    ("style", "settings", "most", "mean"),
    [("fixed", {}, 0, 0.0), ("fixed", {"offset": 1}, 1, 19 / 20), ("fully_async", {}, 1, 19 / 20)],
)
def test_off_policy_steps_are_counted_for_each_row(style, settings, most, mean) -> None:
    """Run ahead by a step, all rows but those of the first are one step old."""
    outcome = simulated(replace(SETUP, style=style, **settings))

    assert outcome.most_off_policy == most
    assert outcome.off_policy == pytest.approx(mean)


@pytest.mark.parametrize(
    ("style", "settings"),
    [
        ("fixed", {"synchronizer.sync_interval": 3, "synchronizer.sync_offset": 1}),
        ("explorer_driven", {"synchronizer.explorer_sync_interval": 4}),
        ("trainer_driven", {"synchronizer.trainer_sync_interval": 4}),
        ("trainer_driven", {"synchronizer.sync_interval": 3}),
        ("fully_async", {"explorer.window": 0.0, "synchronizer.sync_interval": 2}),
        ("fully_async", {"explorer.window": 1.0}),
    ],
)
def test_the_schedule_of_the_file_is_the_one_that_is_simulated(style, settings) -> None:
    config = Config()
    config.mode, config.buffer.batch_size, config.synchronizer.sync_style = "both", 64, style
    for path, value in settings.items():
        section, _, name = path.partition(".")
        setattr(getattr(config, section), name, value)
    times = {"rollout": SETUP.rollout, "train": SETUP.train}

    setup = setup_of(config, Simulation(times=times, train_gpus=1), requests=1, ranks=1)

    assert policy_of(setup.config) == policy_of(config)


@pytest.mark.parametrize("shared", [1.0, 0.3])
@pytest.mark.parametrize("around", [0.0, 0.1])
def test_a_run_of_many_years_ends(shared, around) -> None:
    """Each step is 3.6 million seconds of both sides, which overlap but for the first and last."""
    hours = Seconds(mean=3.6e6)
    times = {"rollout": hours, "train": hours, "around": Seconds(mean=around), "shared": shared}

    outcome = simulated(replace(SETUP, offset=1, steps=40, **times))

    assert outcome.seconds == pytest.approx(3.6e6 * (2 + 39 / shared), rel=1e-4)


def test_single_groups_wait_less_for_slow_rollouts_than_whole_steps() -> None:
    slow = replace(SETUP, rollout=Seconds.of_slowest(10.0, 60.0))
    steps, groups = (simulated(replace(slow, style=s)) for s in ("fixed", "fully_async"))

    assert groups.seconds < 0.6 * steps.seconds
    assert simulated(slow) == steps  # the same seed


def test_a_rollout_begins_again_elsewhere_when_its_engine_fails() -> None:
    """Alone it fails at 25 s and is back at 30; the next failure would be at 55."""
    alone = Engines(1, slots=1, until_failure=lambda: 25.0, restart_s=5.0)
    ends = [alone.run(10.0, at=at) for at in (0.0, 10.0, 20.0, 40.0)]
    failures = iter([25.0, 1000.0])
    two = Engines(2, slots=1, until_failure=lambda: next(failures), restart_s=500.0)

    rounded = iter([0.1, 1000.0])  # 0.1 + 0.7 - 0.7 is below 0.1
    odd = Engines(1, slots=1, until_failure=lambda: next(rounded), restart_s=0.7)

    assert odd.run(5.0, at=0.0) == pytest.approx(5.8)
    assert ends == [10.0, 20.0, 40.0, 50.0]
    assert (alone.num_lost, alone.busy_s) == (1, 40.0)
    assert [two.run(30.0, at=0.0), two.run(30.0, at=0.0)] == [55.0, 85.0]  # the other has both
    assert two.num_lost == 1


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (["failure=0"], "Write more than 0"),
        (["failure=1"], "never ends"),
        # 120 s of a rollout and a train step
        (["failure=0.1", "restart=0"], "1,000 times in a step of 120 s. Write 0.12 or more"),
    ],
)
def test_engines_that_fail_before_any_rollout_ends_are_refused(tmp_path, failure, said) -> None:
    (tmp_path / "run.yaml").write_text(YAML)
    words = ["--simulate"]
    for time in ["rollout=100", "train=20", *failure]:
        words += ["--time", time]
    ended = CliRunner().invoke(app, ["plan", str(tmp_path / "run.yaml"), "--gpus", "8", *words])

    assert isinstance(ended.exception, ConfigError)
    assert said in str(ended.exception)


def test_the_tail_of_drawn_times_is_as_given() -> None:
    given, dice = Seconds.parse("12:60"), random.Random(0)
    drawn = sorted(given.draw(dice) for _ in range(50_000))

    assert sum(drawn) / len(drawn) == pytest.approx(12, rel=0.02)
    assert drawn[49_500] == pytest.approx(60, rel=0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "is no time"),
        ("-1", "0 or more"),
        ("nan", "0 or more"),
        ("1:60", "4.29 or more"),
        ("9:2", "below the mean"),
    ],
)
def test_what_is_no_time_is_refused(text, said) -> None:
    with pytest.raises(ConfigError, match=said):
        Seconds.parse(text)


def written(path, *, num_steps: int):
    explorer = {
        "time/rollout_s": 10.0, "time/engine_s": 6.0, "time/workflow_s": 3.0,
        "rollout/time/run_execution/mean": 4.0, "rollout/time/run_execution/max": 4.0,
    }  # fmt: skip
    sides = {
        "explorer": explorer,
        "trainer": {"time/train_s": 5.0},
        "synchronizer": {"time/sync_s": 1.0, "time/step_s": 18.0},
    }
    rows = [
        json.dumps(row | {"step": step, "role": role})
        for step in range(1, num_steps + 1)
        for role, row in sides.items()
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_times_are_read_from_the_record_of_a_run(tmp_path) -> None:
    """Of 10 s of a rollout step 9 are rollouts; 2 s of a step's 18 are of no side."""
    times = recorded_times(written(tmp_path / "metrics.jsonl", num_steps=6), requests=32)

    assert times.num_steps == 3
    assert times.rollout == Seconds(mean=4.0)
    assert (times.around.mean, times.train.mean, times.sync.mean) == (1.0, 5.0, 3.0)
    with (tmp_path / "metrics.jsonl").open("a") as file:  # a number that JSON cannot hold
        row = {"step": 7, "role": "synchronizer", "time/sync_s": None, "time/step_s": 1.0}
        file.write(json.dumps(row) + "\n")
    assert recorded_times(tmp_path / "metrics.jsonl", requests=32) == times
    with pytest.raises(ConfigError, match="no times of rollouts"):
        recorded_times(written(tmp_path / "metrics.jsonl", num_steps=3), requests=32)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0])
def test_the_tail_of_a_record_is_that_of_the_rollouts_that_it_is_of(tmp_path, sigma) -> None:
    """A record has the mean of a step's rollouts and the longest of them."""
    dice, given = random.Random(0), Seconds(mean=4.0, sigma=sigma)
    path = written(tmp_path / "metrics.jsonl", num_steps=1000)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["role"] == "explorer":
            drawn = [given.draw(dice) for _ in range(32)]
            row["rollout/time/run_execution/mean"] = sum(drawn) / 32
            row["rollout/time/run_execution/max"] = max(drawn)
        if row["role"] == "trainer":
            row["time/train_s"] = given.draw(dice)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    times = recorded_times(path, requests=32)

    for found in (times.rollout, times.train):
        assert (found.mean, found.sigma) == (pytest.approx(4.0, rel=0.1), pytest.approx(sigma, 0.1))


def candidate(**numbers):
    given = {"seconds": 1.0, "train_steps": 1, "engines_idle": 0.0, "trainer_idle": 0.0}
    outcome = Outcome(**given | {"num_lost": 0} | numbers)
    return Candidate(setup=SETUP, outcome=outcome)


def test_of_two_that_are_as_fast_the_one_with_newer_rows_is_chosen() -> None:
    fast = candidate(rows=1000, off_policy=1.9, most_off_policy=3)
    newer = candidate(rows=980, off_policy=0.9, most_off_policy=1)
    slow = candidate(rows=900, off_policy=0.0, most_off_policy=0)

    assert best_of([slow, fast, newer], most=4) is newer
    assert best_of([slow, fast], most=4) is fast
    assert best_of([slow, fast], most=2) is slow
    assert best_of([fast], most=2) is None


YAML = """\
project: p
name: n
mode: both
algorithm: {algorithm_type: grpo, repeat_times: 4}
model: {model_path: qwen2.5-0.5b, max_prompt_tokens: 64, max_response_tokens: 64}
buffer:
  batch_size: 8
  total_steps: 5
"""


def test_the_command_prints_each_arrangement_and_the_one_that_it_would_choose(tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(YAML)
    run = ["plan", str(file), "--gpus", "8", "--simulate", "--steps", "5"]

    given = CliRunner().invoke(app, [*run, "--time", "rollout=10", "--time", "train=20"])
    missing = CliRunner().invoke(app, run)
    unused = CliRunner().invoke(app, ["plan", str(file), "--time", "rollout=10"])
    (tmp_path / "runs/n/monitor").mkdir(parents=True)  # of a stage of the run that is named
    written(tmp_path / "runs/n/monitor/metrics.jsonl", num_steps=6)
    recorded = CliRunner().invoke(app, [*run, "--record", str(tmp_path / "runs")])

    assert "10 of 18 arrangements" in given.output
    # 32 rows on 4 engines of 8 slots: 10 s, and a train step of 20 s beside; 5 x 32 / (10 + 5 x 20)
    assert "fixed, sync_offset 1 | 4 + 4 GPUs | 1.455" in given.output
    assert "off-policy steps: " in given.output
    assert "needs the seconds of a rollout and a train" in str(missing.exception or missing.output)
    assert unused.exit_code != 0
    assert "rollout 4 s" in recorded.output


TIMES = ["--simulate", "--steps", "5", "--time", "rollout=10", "--time", "train=20"]


@pytest.fixture
def planned(tmp_path):
    """Return a function that plans a small file, and what it prints."""
    file = tmp_path / "run.yaml"
    file.write_text(YAML)
    return lambda *words: CliRunner().invoke(app, ["plan", str(file), *words, *TIMES]).output


def test_without_gpus_none_are_spoken_of(planned) -> None:
    said = planned("--gpus", "0")

    lines = said[said.index("simulated, over Ray:") :]
    assert "| engines + trainer ranks, without GPUs |" in lines
    assert "fixed, sync_offset 1 | 1 + 1 |" in lines
    assert "GPU" not in lines.replace("without GPUs", "")
    assert "6 of 6 arrangements" in lines


def test_one_gpu_is_that_of_both_sides(planned) -> None:
    assert "fixed, sync_offset 0 | 1 GPU of both |" in planned("--gpus", "1")


def test_what_two_sides_of_one_gpu_cost_each_other_is_said_to_be_left_out(planned) -> None:
    left_out = "each is taken to be as fast as alone"

    assert left_out in planned("--gpus", "1")
    assert left_out not in planned("--gpus", "1", "--shared", "0.5")
    assert left_out not in planned("--gpus", "2")


def test_a_record_that_is_not_there_is_refused(tmp_path) -> None:
    (tmp_path / "run.yaml").write_text(YAML)
    words = ["plan", str(tmp_path / "run.yaml"), "--gpus", "8", "--simulate"]

    ended = CliRunner().invoke(app, [*words, "--record", "nowhere"])

    assert isinstance(ended.exception, ConfigError)
    said = "--record nowhere: there is no such folder, seen from here"
    assert said in str(ended.exception)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (["rollout=3600"], "not simulated: rollouts take 3,600 s on average, and explorer.max_"),
        (["rollout=1000", "tool=1000"], "not simulated: rollouts take 2,000 s on average"),
        # the slowest of a hundred reaches the limit of 1,800 s
        (["rollout=1000:1800"], "about 1 % of the rollouts reach explorer.max_timeout (1,800 s)"),
        (["rollout=800:1600", "tool=200"], "about 1 % of the rollouts reach explorer.max_timeout"),
    ],
)
def test_rollouts_that_time_out_are_not_silently_cut(tmp_path, times, said) -> None:
    """The second stage is simulated all the same, or not for the same reason."""
    stages = "stages: [{stage_name: a}, {stage_name: b, explorer: {max_timeout: 100000}}]\n"
    (tmp_path / "run.yaml").write_text(YAML + stages)
    words = ["plan", str(tmp_path / "run.yaml"), "--gpus", "8", "--simulate", "--steps", "2"]
    words += [word for time in [*times, "train=20"] for word in ("--time", time)]

    first, second = CliRunner().invoke(app, words).output.split("n/b:\n")

    assert said in first
    assert ("arrangements" in first) == said.startswith("about")
    assert "arrangements" in second
    assert "explorer.max_timeout" not in second


def test_a_local_run_goes_in_turns_whatever_its_style(planned) -> None:
    """8 slots: 32 rows in 4 waves of 10 s, then 20 s of training: 60 s a step."""
    said = planned("--gpus", "0", "--local")

    assert "simulated, one process (--local), in turns: " in said
    for style in ("fixed, sync_offset 0", "trainer_driven, max_inflight_batches 2"):
        assert f"{style} | 1 + 1 | 0.5333 | 60 |" in said
    assert "fixed, sync_offset 0 | 1 + 1 | 0.5333 | 60 |" in planned("--gpus", "0")
    assert "fixed, sync_offset 1 | 1 + 1 | 0.7273 |" in planned("--gpus", "0")  # 160 / (40*5 + 20)


def test_a_local_run_uses_one_of_eight_gpus(planned) -> None:
    said = planned("--gpus", "8", "--local")

    assert "n, on 1 GPU of 80 GB:" in said
    assert "| 1 GPU of both |" in said


def test_a_colocated_run_is_simulated_in_turns_on_all_gpus_and_compared_with_splits(
    planned,
) -> None:
    """8 engines of 8 slots: 10 s; a train step of 20 s on 8 GPUs. In turns 30 s."""
    said = planned("--gpus", "8", "--set", "explorer.rollout_model.enable_sleep_mode=true")

    assert "fixed, sync_offset 0 | 8 GPUs of both | 1.067 | 30 |" in said
    assert "fixed, sync_offset 1 | 4 + 4 GPUs |" in said


def own_line(said: str) -> str:
    [line] = [one for one in said.splitlines() if one.endswith("(this configuration)")]
    return line


def test_the_line_of_this_configuration_is_that_of_its_own_intervals(planned) -> None:
    """Rollouts 2, 3 and 4 have the weights of the first: the last of them is 3 steps old."""
    style = ["--gpus", "8", "--set", "synchronizer.sync_style=explorer_driven"]
    line = own_line(planned(*style, "--set", "synchronizer.explorer_sync_interval=4"))

    assert "explorer_driven, max_inflight_batches 2, sync_interval 4 | 4 + 4 GPUs |" in line
    assert line.endswith(", 3 (this configuration)")
    assert own_line(planned(*style)).endswith(", 1 (this configuration)")


def test_what_cuts_slow_groups_off_is_said_to_be_left_out(planned) -> None:
    style = ["--gpus", "8", "--set", "synchronizer.sync_style=fully_async"]
    cut = planned(*style, "--set", "explorer.over_rollout.ratio=0.5", "--set", "explorer.window=0")

    assert "without explorer.over_rollout: here each group is waited for" in cut
    assert "fully_async, max_inflight_batches 2, window 0 |" in own_line(cut)
    assert "is waited for" not in planned(*style)


def test_a_schedule_that_the_check_refuses_is_not_simulated(planned) -> None:
    style = ["--gpus", "8", "--set", "synchronizer.sync_style=fully_async"]
    said = planned(*style, "--set", "synchronizer.sync_interval=5")

    assert said.index("Use 2 or less") < said.index("not simulated: first mend")
    assert said.rstrip().endswith("first mend synchronizer.sync_interval")


def test_problems_are_printed_before_a_time_is_missed(tmp_path) -> None:
    (tmp_path / "run.yaml").write_text(YAML)
    words = ["--gpus", "1", "--gpu-memory", "8", "--set", "trainer.max_token_len_per_gpu=100000"]
    ended = CliRunner().invoke(app, ["plan", str(tmp_path / "run.yaml"), *words, "--simulate"])

    assert "model.model_path: has 0.5 billion parameters" in ended.output
    assert "needs the seconds of a rollout and a train" in str(ended.exception)


def test_on_several_machines_a_split_has_ranks_on_whole_ones(planned) -> None:
    """Of 3 x 8 GPUs 6 engines leave 2 + 8 + 8: 16 ranks."""
    said = planned("--gpus", "8", "--set", "cluster.node_num=3")

    assert "fixed, sync_offset 0 | 8 + 16 GPUs |" in said
    assert "| 6 + 16 GPUs |" in said
    assert "| 6 + 18 GPUs |" not in said


def test_the_plan_says_for_which_length_it_is_and_where_that_is_from(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    file = tmp_path / "run.yaml"
    file.write_text(YAML)
    model = ["--set", "model.max_prompt_tokens=null", "--set", "model.model_path="]
    unknown, known = (
        CliRunner().invoke(app, ["plan", str(file), "--gpus", "8", *model[:-1], model[-1] + name])
        for name in ("nobody/nothing", "Qwen/Qwen2.5-7B-Instruct")
    )

    assert "model.max_model_len = 2048  # default" in unknown.output
    assert "model.max_model_len = 32768  # the model's config.json" in known.output
