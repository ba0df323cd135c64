"""``trinity sweep``: names, collisions, failures, and going on after an end."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trinity.common.config import load_config
from trinity.errors import ConfigError
from trinity_lab.points import axes_of, points_of
from trinity_lab.side_by_side import SideBySide
from trinity_lab.sweep_command import run_all
from trinity_lab.sweep_files import SweepFolder, SweepRun, read_sweep

# A run that writes its arguments down, and fails where its seed is 1 and no file says otherwise.
RUN = """
import json, pathlib, sys
settings = dict(text.partition("=")[::2] for text in sys.argv[1:] if "=" in text)
folder = pathlib.Path("runs/p") / json.loads(settings["name"])
folder.mkdir(parents=True, exist_ok=True)
with (folder / "run.json").open("a") as file:
    file.write(json.dumps(settings) + "\\n")
if settings["seed"] == "1" and not pathlib.Path("mended").exists():
    sys.exit("Error: no luck with this seed")
"""


@pytest.fixture
def a_file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.yaml"
    path.write_text(
        "project: p\nname: toy\ncheckpoint_root_dir: ./runs\nseed: 0\n"
        "sweep: {algorithm.policy_loss_fn: [ppo, gspo], seed: 2}\n"
    )
    return path


def folder_of(file: Path, *settings: str) -> SweepFolder:
    config = load_config(file, overrides=settings)
    return SweepFolder.of(config, points_of(axes_of(config.sweep, seed=config.seed)))


def run(folder: SweepFolder, *, num: int = 2) -> int:
    with folder.held():
        return run_all(folder, program=[sys.executable, "-c", RUN], slots=[{}] * num)


def test_a_failed_run_is_named_and_tried_again_and_finished_ones_are_not(a_file, capsys) -> None:
    assert run(folder_of(a_file)) == 1
    said = capsys.readouterr().out

    assert "2 of 4 runs are finished" in said
    assert (
        "FAILED toy-policy_loss_fn=ppo-seed=1  exit code 1: Error: no luck with this seed" in said
    )
    assert "2 failed: toy-policy_loss_fn=ppo-seed=1, toy-policy_loss_fn=gspo-seed=1" in said

    Path("mended").touch()
    assert run(folder_of(a_file)) == 0
    starts = {
        one.parent.name: len(one.read_text().splitlines()) for one in Path("runs").rglob("run.json")
    }
    assert starts == {
        "toy-policy_loss_fn=ppo-seed=0": 1,
        "toy-policy_loss_fn=ppo-seed=1": 2,
        "toy-policy_loss_fn=gspo-seed=0": 1,
        "toy-policy_loss_fn=gspo-seed=1": 2,
    }


# Stands for a run: it prints one step and writes an evaluation whose value follows from its seed.
# With seed 1 it first waits until the file "go" exists.
SCORED = """
import json, pathlib, sys, time
settings = dict(text.partition("=")[::2] for text in sys.argv[1:] if "=" in text)
folder = pathlib.Path("runs/p") / json.loads(settings["name"])
folder.mkdir(parents=True, exist_ok=True)
print("step 1/2  reward 0.125  loss 0.1  3 s, 3 s left", flush=True)
while settings["seed"] == "1" and not pathlib.Path("go").exists():
    time.sleep(0.05)
evaluation = {"eval/held_out/reward/mean@4": 0.5 + int(settings["seed"]) / 8}
(folder / "run.json").write_text(json.dumps({"status": "finished", "evaluation": evaluation}))
"""


def test_while_a_sweep_goes_on_it_tells_scores_and_how_long_it_takes(
    a_file,
) -> None:
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        if line.startswith("active toy-policy_loss_fn=gspo-seed=1  step 1/2"):
            Path("go").touch()

    folder = folder_of(a_file)
    program = [sys.executable, "-c", SCORED]
    work = SideBySide(folder=folder, program=program, slots=[{}] * 2, say=say, tell_s=0.2)
    with folder.held():
        work.run(folder.runs)

    pattern = (
        r"done   toy-policy_loss_fn=(\S+)  \d+ s  (.*)  \((\d) of 4 ended(, about \d+ s left)?\)"
    )
    found = [re.fullmatch(pattern, line) for line in told if line.startswith("done")]
    rows = [one.groups() for one in found if one is not None]
    assert {name: score for name, score, *_ in rows} == {
        f"{loss}-seed={seed}": f"eval/held_out/reward/mean@4 {value}"
        for loss in ("ppo", "gspo")
        for seed, value in ((0, "0.500"), (1, "0.625"))
    }
    assert [count for _, _, count, _ in rows] == ["1", "2", "3", "4"]
    assert [left is not None for *_, left in rows] == [True, True, True, False]


# A run that prints a step and an error once, and says nothing when it is started again.
SILENT_AFTER = """
import pathlib, sys, time
if not pathlib.Path("again").exists():
    print("step 1/2  reward 0.125", flush=True)
    sys.exit("Error: no luck this time")
while not pathlib.Path("go").exists():
    time.sleep(0.05)
sys.exit(7)
"""


def test_a_run_that_is_started_again_is_told_without_what_it_printed_before(a_file) -> None:
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        if line.startswith("active"):
            Path("go").touch()

    folder = folder_of(a_file)
    program = [sys.executable, "-c", SILENT_AFTER]
    for _ in range(2):
        told.clear()
        Path("go").unlink(missing_ok=True)  # it waits until it was told as active
        work = SideBySide(folder=folder, program=program, slots=[{}], say=say, tell_s=0.2)
        with folder.held():
            work.run(folder.runs[:1])
        Path("again").touch()

    name = folder.runs[0].name
    assert f"active {name}  starting" in told
    assert f"FAILED {name}  exit code 7: \n" in "\n".join(told)


def test_a_finished_run_whose_files_cannot_be_read_has_no_score_and_the_sweep_goes_on(
    a_file,
) -> None:
    told: list[str] = []
    folder = folder_of(a_file)
    source = SCORED.replace("folder.mkdir", "folder = folder / 'stage'\nfolder.mkdir")  # no config
    Path("go").touch()
    work = SideBySide(
        folder=folder, program=[sys.executable, "-c", source], slots=[{}] * 2, say=told.append
    )
    with folder.held():
        work.run(folder.runs)

    assert [line.split()[0] for line in told].count("done") == 4
    assert not any("reward" in line for line in told)


def test_each_run_has_its_settings_and_no_section_sweep(a_file) -> None:
    run(folder_of(a_file), num=1)

    line = Path("runs/p/toy-policy_loss_fn=gspo-seed=0/run.json").read_text()
    settings = json.loads(line)
    assert settings["algorithm.policy_loss_fn"] == '"gspo"'
    assert settings["seed"] == "0"
    assert settings["sweep"] == "{}"


def test_seeds_can_be_added_to_a_sweep(a_file) -> None:
    Path("mended").touch()
    run(folder_of(a_file))

    more = folder_of(a_file, "sweep.seed=3")
    assert run(more) == 0

    sweep = read_sweep(more.path)
    assert sweep is not None
    assert len(sweep.runs) == 6
    assert len(more.finished()) == 6


def test_a_run_whose_directory_was_removed_is_made_again(a_file, capsys) -> None:
    Path("mended").touch()
    run(folder_of(a_file))
    removed = Path("runs/p/toy-policy_loss_fn=gspo-seed=1")
    shutil.rmtree(removed)
    capsys.readouterr()

    with folder_of(a_file).held():  # killed as soon as the run had begun
        removed.mkdir()
        (removed / "trinity.log").touch()
    assert run(folder_of(a_file)) == 0

    assert "3 of them were finished before" in capsys.readouterr().out
    assert len((removed / "run.json").read_text().splitlines()) == 1


def test_a_sweep_all_of_whose_runs_were_removed_may_have_other_settings(a_file) -> None:
    Path("mended").touch()
    run(folder_of(a_file))
    for one in Path("runs/p").glob("toy-*"):
        shutil.rmtree(one)

    assert run(folder_of(a_file, "buffer.batch_size=3")) == 0
    assert len(list(Path("runs/p").glob("toy-*/run.json"))) == 4


def test_a_run_directory_of_somebody_else_is_an_error_and_nothing_starts(a_file) -> None:
    other = Path("runs/p/toy-policy_loss_fn=gspo-seed=1")
    other.mkdir(parents=True)
    (other / "run.json").write_text("{}")

    with pytest.raises(ConfigError, match=r"1 of 4 run directories .*gspo-seed=1"):
        run(folder_of(a_file))
    assert not list(Path("runs/p").glob("*ppo*"))


def refused(folder: SweepFolder) -> int:
    """Start runs of a file that each refuses to run: they leave no run directory."""
    error = "Error: run.yaml has 2 problems:\n  run.yaml:1: project: a\n  run.yaml:2: name: b"
    with folder.held():
        program = [sys.executable, "-c", f"import sys; sys.exit({error!r})"]
        return run_all(folder, program=program, slots=[{}] * 4)


def test_the_problems_of_a_run_that_failed_are_said_with_their_number(a_file, capsys) -> None:
    assert refused(folder_of(a_file)) == 1

    assert (
        "exit code 1: Error: run.yaml has 2 problems:\n  run.yaml:1: project: a\n"
        "  run.yaml:2: name: b\n       log "
    ) in capsys.readouterr().out


def test_a_sweep_none_of_whose_runs_had_begun_can_be_started_again_with_other_settings(
    a_file,
) -> None:
    refused(folder_of(a_file))

    again = folder_of(a_file, "buffer.batch_size=3", "sweep.seed=1")
    assert run(again) == 0

    sweep = read_sweep(again.path)
    assert sweep is not None
    assert [one.name for one in sweep.runs] == [
        "toy-policy_loss_fn=ppo-seed=0",
        "toy-policy_loss_fn=gspo-seed=0",
    ]


def test_a_sweep_that_was_begun_with_other_settings_is_an_error(a_file) -> None:
    run(folder_of(a_file))

    with pytest.raises(ConfigError, match=r"begun with other values of buffer\.batch_size"):
        run(folder_of(a_file, "buffer.batch_size=3"))


@pytest.mark.parametrize(
    ("section", "options", "says"),
    [
        ("algorithm.optimiser.lr: [1, 2]", [], "run.yaml:8: algorithm.optimiser"),
        ("algorithm.optimizer.lr: [1, fast]", [], "run.yaml:8: algorithm.optimizer.lr"),
        ("algorithm.policy_loss_fn: [ppo, gsppo]", [], "run.yaml:8: algorithm.policy_loss_fn: no"),
        ("seed: many", [], "run.yaml:8: sweep.seed is 'many'"),
        ("buffer.batch_size: 3", [], "run.yaml:8: sweep.buffer.batch_size is 3"),
        ("max_parallel: -1", [], "run.yaml:8: sweep.max_parallel is -1"),
        ("seed: 1", ["--over", "algorithm.optimiser.lr=[1, 2]"], "--over: algorithm.optimiser"),
    ],
)
def test_a_wrong_value_is_blamed_on_who_wrote_it_before_any_run_starts(
    a_file, call, section, options, says
) -> None:
    head = a_file.read_text().partition("sweep:")[0]
    seed = "" if section.startswith("seed") else "  seed: 2\n"
    a_file.write_text(f"{head}algorithm:\n  optimizer: {{lr: 0.1}}\nsweep:\n  {section}\n{seed}")

    result = call("sweep", a_file, "--local", *options)

    assert says in str(result.exception).replace(f"{a_file.parent}/", "")
    assert "command line" not in str(result.exception)
    assert not Path("runs").exists()


def test_a_file_that_cannot_be_run_is_refused_as_by_config_check_and_nothing_is_written(
    a_file, call
) -> None:
    checked = call("config", "check", a_file).stdout.splitlines()
    number = int(re.search(r"run\.yaml: (\d+) problem", "\n".join(checked))[1])
    assert number > 0

    result = call("sweep", a_file)

    assert result.exit_code != 0
    assert str(result.exception).splitlines()[1:] == checked[-number:]
    assert not Path("runs").exists()


def test_the_runs_are_listed_without_starting_any(a_file, call) -> None:
    said = call("sweep", a_file, "--seeds", 1, "--dry-run").stdout

    assert said.split() == ["toy-policy_loss_fn=ppo-seed=0", "toy-policy_loss_fn=gspo-seed=0"]
    assert not Path("runs").exists()


def test_a_stopped_sweep_stops_its_runs_and_exits_130(a_file, tmp_path) -> None:
    script = tmp_path / "stopped.py"
    script.write_text(
        "import sys, pathlib\n"
        "from trinity.common.config import load_config\n"
        "from trinity_lab.points import axes_of, points_of\n"
        "from trinity_lab.sweep_command import run_all\n"
        "from trinity_lab.sweep_files import SweepFolder\n"
        "config = load_config('run.yaml')\n"
        "folder = SweepFolder.of(config, points_of(axes_of(config.sweep, seed=0)))\n"
        "run = [sys.executable, '-c', 'import time; print(\"up\", flush=True); time.sleep(60)']\n"
        "with folder.held():\n"
        "    sys.exit(run_all(folder, program=run, slots=[{}] * 2))\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path)
    logs = tmp_path / "runs/p/toy.sweep/logs"
    deadline = time.monotonic() + 60
    while sum("up" in one.read_text() for one in logs.glob("*.log")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)

    assert process.wait(timeout=60) == 130


def test_a_result_that_the_disk_did_not_take_hides_no_later_one(tmp_path) -> None:
    names = ("one", "two")
    one, two = (SweepRun(name=n, directory=tmp_path / n, settings={}) for n in names)
    folder = SweepFolder(path=tmp_path, runs=(one, two), shared={})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            folder.note(one, exit_code=0, seconds=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    folder.note(two, exit_code=0, seconds=2.0)

    assert folder.finished() == {"two": 2.0}
    assert str(raised.value.filename).startswith(str(tmp_path))
