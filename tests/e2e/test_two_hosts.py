"""A run over two machines: one of them loses its power, or the cable between them is cut.

Each machine is a network namespace (``two_hosts.py``). ``nox -s hosts`` runs all of this.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trinity
import yaml
from trinity.common.config import load_config

sys.path.insert(0, str(Path(__file__).parent))
from two_hosts import TwoHosts, join, left_of, short_folder, start_head, two_hosts, why_not

logger = logging.getLogger(__name__)

NUM_STEPS = 40
NOTICED_S = 90.0
RUN_S = 420.0
OUT_S = 20.0  # that the cable is
SEEN = re.compile(r"lost|taken over|going on after|Error")
CLOCKED = re.compile(r"(^|/)(time|perf|idle)/")
STARTED = re.compile(r"(\S+) started: node \S+ process (\d+)")


def test_what_two_hosts_need_is_said_where_it_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in why_not()

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert "apt-get install iproute2" in why_not()


@pytest.fixture(scope="module")
def machines() -> Iterator[TwoHosts]:
    """Give two machines without Ray; after the last test nothing of them is there."""
    why = why_not()
    if why:
        pytest.skip(why)
    with two_hosts(short_folder()) as both:
        yield both
    assert not left_of(both)


@pytest.fixture(scope="module")
def head(machines) -> str:
    """Return the address of Ray's head on the first."""
    return start_head(machines, Path(machines.head.env["RAY_TMPDIR"]))


@pytest.fixture
def cluster(machines, head) -> Iterator[str]:
    """Return the address of a cluster of both; after the test, the other is off."""
    join(machines, head)
    yield head
    machines.other.kill()
    machines.mend()


@pytest.fixture
def config(config_dict, rows) -> dict[str, Any]:
    """Return 40 steps of two tasks, four runs each."""
    lines = [{"question": f"{n} + 1 =", "answer": str(n + 1)} for n in range(2 * NUM_STEPS)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config_dict["buffer"]["batch_size"] = 2
    return config_dict


class Run:
    """``trinity run`` on the head, as a user starts it there.

    Args:
        machines: both.
        address: of the cluster.
        config: of the run.
        folder: where it is started.
    """

    def __init__(
        self, machines: TwoHosts, address: str, config: dict[str, Any], folder: Path
    ) -> None:
        self._machines = machines
        self.directory = Path(config["checkpoint_root_dir"], "e2e", config["name"])
        file = folder / f"{config['name']}.yaml"
        file.write_text(yaml.safe_dump(config))
        self._said = file.with_suffix(".said")
        with self._said.open("w") as said:
            self.process = machines.head.start(
                *("env", f"RAY_ADDRESS={address}"),
                *(sys.executable, "-m", "trinity", "run", "--config", file),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    @property
    def said(self) -> str:
        """Return what the person at the terminal has read."""
        return self._said.read_text()

    def wait_for_steps(self, number: int) -> None:
        """Return when so many optimizer steps are in the history."""
        limit = time.monotonic() + RUN_S
        while len(history(self.directory)) < number:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < limit, self.said
            time.sleep(0.05)

    def rooms_of_other(self) -> set[str]:
        """Return the rooms whose processes are on the other machine."""
        there = set(self._machines.other.pids())
        log = (self.directory / "trinity.log").read_text()
        return {name for name, pid in STARTED.findall(log) if int(pid) in there}

    def seconds_until_noticed(self) -> float:
        """Return when the terminal told of a loss, counted from now; nan: the run ended before."""
        began, known = time.monotonic(), len(self.said)
        while not SEEN.search(self.said[known:]):
            if self.process.poll() is not None:
                return float("nan")
            assert time.monotonic() - began < 2 * NOTICED_S, self.said
            time.sleep(0.1)
        return time.monotonic() - began

    def stop(self) -> None:
        """End it at once, if it has not ended."""
        self.process.kill()
        self.process.wait(30)

    def end(self) -> None:
        """Return when the run has ended well."""
        assert self.process.wait(RUN_S) == 0, self.said


@pytest.fixture
def begin(machines, cluster, config, tmp_path) -> Iterator[Callable[..., Run]]:
    """Return a function that begins a run; one that a test leaves is ended."""
    begun: list[Run] = []

    def start(name: str, **sections: Any) -> Run:
        begun.append(Run(machines, cluster, config | {"name": name} | sections, tmp_path))
        return begun[-1]

    yield start
    for run in begun:
        run.stop()


def begun_on_both(
    begin: Callable[..., Run], *, num_ranks: int, wanted: str = "", **sections: Any
) -> tuple[Run, set[str]]:
    """Return a run that has made a step, and which of its rooms Ray has put on the other machine.

    Ray deals rooms without GPUs at random; where all are on the head, or none whose name begins as
    ``wanted`` does is on the other, the run is begun again.
    """
    for number in range(8):
        trainer = {"save_interval": 4, "max_checkpoints_to_keep": 2, "num_ranks": num_ranks}
        run = begin(f"both-{number}", trainer=trainer, **sections)
        run.wait_for_steps(1)
        rooms = run.rooms_of_other()
        if any(room.startswith(wanted) for room in rooms):
            return run, rooms
        run.stop()
    raise AssertionError(f"Ray started eight runs with no {wanted or 'room'} on the other host")


def history(directory: Path) -> list[tuple[int, list[str]]]:
    """Return the steps of the weights and what was trained in each."""
    path = directory / "history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line["step"], line["eids"]) for line in map(json.loads, lines)]


def numbers(directory: Path) -> list[dict[str, float]]:
    """Return what was measured but for times, sorted by role and step."""
    lines = (directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: (row["role"], row["step"]))
    return [
        {
            key: value
            for key, value in row.items()
            if isinstance(value, float | int) and not CLOCKED.search(key)
        }
        for row in rows
    ]


@pytest.fixture
def by_gloo(config) -> dict[str, Any]:
    """Return sections of two engines, which are spread over both, and of weights sent by gloo."""
    explorer = config["explorer"] | {"rollout_model": {"engine_num": 2}}
    return {"explorer": explorer, "synchronizer": {"sync_method": "gloo", "sync_timeout": 120}}


@pytest.fixture
def unbroken(config) -> Path:
    """Return the run directory of the same run in one process."""
    result = trinity.run(config_of(config | {"name": "here"}), local=True)
    return result.directory


def config_of(config: dict[str, Any]) -> Any:
    folder = Path(config["checkpoint_root_dir"])
    folder.mkdir(exist_ok=True)
    path = folder / f"{config['name']}.yaml"
    path.write_text(yaml.safe_dump(config))
    return load_config(path)


def tell(name: str, **told: object) -> None:
    """Say in the log of the session what was seen."""
    logger.info("%s: %s", name, ", ".join(f"{key} {value}" for key, value in told.items()))


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("num_ranks", "rel", "abs_"),
    [(1, 1e-5, 1e-7), (2, 1e-4, 1e-6)],  # ranks add gradients in another order
)
def test_a_run_over_both_has_the_numbers_of_one_process(
    begin, unbroken, num_ranks, rel, abs_
) -> None:
    run, rooms = begun_on_both(begin, num_ranks=num_ranks)
    run.end()

    assert history(run.directory) == history(unbroken)
    for row, other in zip(numbers(run.directory), numbers(unbroken), strict=True):
        assert row == pytest.approx(other, rel=rel, abs=abs_)
    tell("both", rooms_there=sorted(rooms))


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.parametrize("what", ["loses its power", "is cut off"])
def test_nothing_is_lost_or_trained_twice_when_the_other_host(
    begin, machines, unbroken, what
) -> None:
    run, rooms = begun_on_both(begin, num_ranks=1)
    run.wait_for_steps(6)
    if what == "loses its power":
        assert machines.power_off()
    else:
        machines.cut()
    began = time.monotonic()
    noticed_s = run.seconds_until_noticed()
    run.end()

    assert history(run.directory) == history(unbroken)
    assert noticed_s <= NOTICED_S, run.said
    ended_s = time.monotonic() - began
    tell(what, rooms_there=sorted(rooms), noticed_s=f"{noticed_s:.0f}", ended_s=f"{ended_s:.0f}")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
def test_weights_that_go_over_the_cable_by_gloo_give_the_numbers_of_one_process(
    begin, config, by_gloo
) -> None:
    run, rooms = begun_on_both(begin, num_ranks=1, **by_gloo)
    run.end()
    alone = config | {"name": "here", "explorer": by_gloo["explorer"]}
    unbroken = trinity.run(config_of(alone), local=True).directory

    assert len(rooms & {"engine-0", "engine-1"}) == 1
    assert " of 3 of rollout_weight_sync/1, gloo" in log_of(run, "engine-1")
    assert history(run.directory) == history(unbroken)
    for row, other in zip(numbers(run.directory), numbers(unbroken), strict=True):
        assert row == pytest.approx(other, rel=1e-5, abs=1e-7)
    tell("gloo", rooms_there=sorted(rooms))


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
def test_nothing_is_lost_or_trained_twice_when_the_host_of_an_engine_leaves_gloo(
    begin, machines, by_gloo, unbroken
) -> None:
    run, rooms = begun_on_both(begin, num_ranks=1, **by_gloo)
    run.wait_for_steps(6)
    assert machines.power_off()
    began = time.monotonic()
    noticed_s = run.seconds_until_noticed()
    run.end()

    assert len(rooms & {"engine-0", "engine-1"}) == 1
    assert history(run.directory) == history(unbroken)
    assert noticed_s <= NOTICED_S, run.said
    ended_s = time.monotonic() - began
    tell("gloo", rooms_there=sorted(rooms), noticed_s=f"{noticed_s:.0f}", ended_s=f"{ended_s:.0f}")


def log_of(run: Run, room: str) -> str:
    return (run.directory / "logs" / f"{room}.log").read_text()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.parametrize("what", ["loses its power", "is cut off"])
def test_a_run_of_two_ranks_goes_back_to_its_checkpoint_when_the_host_of_one(
    begin, machines, unbroken, what
) -> None:
    run, rooms = begun_on_both(begin, num_ranks=2, wanted="trainer-")
    run.wait_for_steps(6)
    if what == "loses its power":
        assert machines.power_off()
    else:
        machines.cut()
    began = time.monotonic()
    noticed_s = run.seconds_until_noticed()
    run.end()

    assert history(run.directory) == history(unbroken)
    assert noticed_s <= NOTICED_S, run.said
    ended_s = time.monotonic() - began
    tell(what, rooms_there=sorted(rooms), noticed_s=f"{noticed_s:.0f}", ended_s=f"{ended_s:.0f}")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.parametrize(("num_ranks", "wanted"), [(1, ""), (2, "trainer-")])
def test_nothing_is_lost_or_trained_twice_when_the_cable_is_out_for_a_while(
    begin, machines, unbroken, num_ranks, wanted
) -> None:
    run, rooms = begun_on_both(begin, num_ranks=num_ranks, wanted=wanted)
    run.wait_for_steps(6)
    began = time.monotonic()
    machines.cut()
    time.sleep(OUT_S)
    machines.mend()
    run.end()

    assert history(run.directory) == history(unbroken)
    ended_s, seen = time.monotonic() - began, SEEN.search(run.said)
    tell(
        f"out for {OUT_S:.0f} s, {num_ranks} ranks",
        rooms_there=sorted(rooms),
        saw=seen.group() if seen else "nothing",
        ended_s=f"{ended_s:.0f}",
    )


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.acceptance
def test_who_maps_the_trainers_memory_stands_on_the_trainers_machine(begin, unbroken) -> None:
    explorer = {"rollout_model": {"engine_num": 2}}
    run = begin("mapped", synchronizer={"sync_method": "ipc"}, explorer=explorer)
    run.wait_for_steps(1)
    there = run.rooms_of_other() & {"trainer", "engine-0", "engine-1"}
    run.end()

    assert there in (set(), {"trainer", "engine-0", "engine-1"})
    assert history(run.directory) == history(unbroken)
    assert "mapped the weights of v" in log_of(run, "engine-1")
