"""A run on GPUs, which are numbers to Ray: who stands where, and nothing is held after its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]

TWO_MACHINES = """
import json, subprocess, sys, time
import ray
from ray.cluster_utils import Cluster

GPUS = int(sys.argv[3])  # of each of the two

def held():
    return 2 * GPUS - ray.available_resources().get("GPU", 0.0)

def until(is_so, limit_s=240.0):
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)

machine = {"num_cpus": 3, "num_gpus": GPUS, "object_store_memory": 200 << 20}
cluster = Cluster(initialize_head=True, head_node_args=machine | {"include_dashboard": False})
cluster.add_node(**machine)
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
command = [sys.executable, "-m", "trinity", "run", "--config", sys.argv[1]]
if sys.argv[2] == "taken":  # as another run takes them
    others = ray.util.placement_group([{"CPU": 3}] * 2, name="trinity-other/1/cpus")
    ray.get(others.ready())
run = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=open("said", "w"))
if sys.argv[2] == "taken":
    until(lambda: "the run waits for CPUs. It asks for 1 + 1" in open("said").read())
    assert run.poll() is None
    ray.util.remove_placement_group(others)
if sys.argv[2] == "kill":
    until(lambda: held() == 4)
    run.kill()
    run.wait(60)
    run = subprocess.Popen(command)  # at once: what the first one held may still be there
assert run.wait(420) == 0, open("said").read()
groups = ray.util.placement_group_table().values()
words = ("name", "strategy", "state", "bundles", "bundles_to_node_id")
print(json.dumps([[each[word] for word in words] for each in groups]))
until(lambda: not held(), limit_s=10.0)
print(held())
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture
def two_machines(config_dict, write_yaml, tmp_path):
    """Return what makes a run on two machines and gives its groups, and what is held after it."""
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2}
    config_dict["model"]["model_path"] = str(config_dict["model"]["model_path"])
    config_dict["cluster"] = {"gpu_per_node": 0}  # defaults of a CPU: PyTorch sees no GPU
    script = tmp_path / "two_machines.py"
    script.write_text(TWO_MACHINES)

    def run(end, *, gpus):
        ended = subprocess.run(
            [sys.executable, script, write_yaml(config_dict), end, str(gpus)],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        *_, groups, held = ended.stdout.splitlines()
        return json.loads(groups), float(held)

    return run


@pytest.mark.parametrize(("end", "num_runs"), [("alone", 1), ("kill", 2)])
def test_engines_and_ranks_have_their_own_machines_and_leave_nothing(
    two_machines, run_dir, end, num_runs
) -> None:
    groups, held = two_machines(end, gpus=2)

    assert held == 0
    assert len(groups) == num_runs
    for name, strategy, state, bundles, nodes in groups:
        assert name.endswith("/workers")
        assert (strategy, state) == ("PACK", "REMOVED")
        assert [bundle["GPU"] for bundle in bundles.values()] == [1, 1, 2]  # two ranks
        assert [bundle["CPU"] for bundle in bundles.values()] == [1, 1, 2]
        assert nodes["0"] == nodes["1"] != nodes["2"]
    assert (run_dir / "logs" / "trainer-1.log").is_file()


def test_without_gpus_engines_and_ranks_are_spread_over_the_machines(
    two_machines, config_dict, run_dir
) -> None:
    config_dict["trainer"] = {"num_ranks": 2}

    groups, _ = two_machines("alone", gpus=0)

    assert sorted(group[0].rpartition("/")[2] for group in groups) == ["engines", "trainer"]
    for _, strategy, state, bundles, nodes in groups:
        assert (strategy, state) == ("SPREAD", "REMOVED")
        assert len(bundles) == 2
        assert nodes["0"] != nodes["1"]
    assert (run_dir / "logs" / "trainer-1.log").is_file()


def test_a_run_whose_cpus_another_run_has_says_so_waits_and_goes_on(
    two_machines, config_dict
) -> None:
    config_dict["explorer"]["rollout_model"] = {"engine_num": 1}

    groups, held = two_machines("taken", gpus=0)

    assert held == 0
    assert {
        (name.partition("/")[0] == "trinity-other", state) for name, _, state, *_ in groups
    } == {
        (True, "REMOVED"),
        (False, "REMOVED"),
    }
