"""A run on GPUs, which are numbers to Ray: who stands where, and nothing is held after its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]

TWO_MACHINES = """
import json, signal, subprocess, sys, time
import ray
from ray.cluster_utils import Cluster

FREE = {"GPU": 4.0}

def held():
    return 4.0 - ray.available_resources().get("GPU", 0.0)

def until(is_so, limit_s=240.0):
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)

machine = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 200 << 20}
cluster = Cluster(initialize_head=True, head_node_args=machine | {"include_dashboard": False})
cluster.add_node(**machine)
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
command = [sys.executable, "-m", "trinity", "run", "--config", sys.argv[1]]
run = subprocess.Popen(command)
if sys.argv[2] == "kill":
    until(lambda: held() == 4)
    run.kill()
    run.wait(60)
    until(lambda: not held(), limit_s=10.0)
    run = subprocess.Popen(command)
assert run.wait(420) == 0
groups = ray.util.placement_group_table().values()
print(json.dumps([[each["state"], each["bundles"], each["bundles_to_node_id"]] for each in groups]))
print(held())
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.parametrize("end", ["alone", "kill"])
def test_engines_and_ranks_have_their_own_machines_and_leave_nothing(
    config_dict, write_yaml, tmp_path, run_dir, end
) -> None:
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2}
    config_dict["model"]["model_path"] = str(config_dict["model"]["model_path"])
    script = tmp_path / "two_machines.py"
    script.write_text(TWO_MACHINES)

    ended = subprocess.run(
        [sys.executable, script, write_yaml(config_dict), end],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    *_, groups, held = ended.stdout.splitlines()
    assert float(held) == 0
    for state, bundles, nodes in json.loads(groups):
        assert state == "REMOVED"
        assert [bundle["GPU"] for bundle in bundles.values()] == [1, 1, 2]  # two ranks
        assert nodes["0"] == nodes["1"] != nodes["2"]
    assert (run_dir / "logs" / "trainer-1.log").is_file()
