"""Over Ray: an engine and a runner are killed in the middle of a step, and nobody can tell."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from trinity.common.config import Config
from trinity.explorer.requests import requests_of
from trinity.extend import get_manager
from trinity.runtime.ray.dispatcher import Dispatcher
from trinity.runtime.ray.engine_supervisor import EngineSupervisor
from trinity.runtime.ray.worker_handle import start_worker
from trinity.runtime.ray.worker_spec import WorkerSpec
from trinity.runtime.record.rundir import RunDir
from trinity_testing.builders import a_task
from trinity_testing.tiny import make_tiny_model

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]

ROOMS = "trinity.runtime.ray"


def a_config(model) -> Config:
    config = Config()
    config.model.model_path = config.explorer.rollout_model.model_path = str(model)
    config.model.max_model_len = config.explorer.rollout_model.max_model_len = 160
    config.model.max_response_tokens = 96
    config.explorer.max_retry_times = 0
    config.explorer.rollout_model.engine_type = "transformers"
    config.explorer.rollout_model.dtype = "float32"
    config.explorer.rollout_model.seed = 1
    return config


@pytest.fixture
def workers(ray_cluster, tmp_path):
    """Return an engine's and a runner's worker, and a scheduler over them."""
    config = a_config(make_tiny_model(tmp_path / "model"))
    rundir = RunDir(tmp_path / "run")
    rundir.create()
    worker_spec = WorkerSpec.of(
        config, rundir=rundir, manager=get_manager(), namespace=ray_cluster.namespace
    )
    engine = start_worker(
        worker_spec,
        "engine-0",
        f"{ROOMS}.engine_worker:EngineWorker",
        num_threads=9,
        max_restarts=3,
        number=0,
    )
    kept = EngineSupervisor(engine)
    kept.supervise()
    runner = start_worker(
        worker_spec,
        "runner-0",
        f"{ROOMS}.rollout_worker:RolloutWorker",
        num_threads=4,
        max_restarts=3,
        namespace=worker_spec.namespace,
        engine="engine-0",
    )
    scheduler = Dispatcher([runner])
    yield engine, runner, scheduler
    kept.close()
    scheduler.close()
    for worker in (runner, engine):
        worker.kill()


def requests():
    return [
        request
        for number in range(4)
        for request in requests_of(
            a_task(f"{number} + 1 =", workflow="math_workflow", repeat_times=4),
            batch="1",
            number=number,
            max_repeat_times=1,
        )
    ]


def said(results):
    return [
        [(e.eid.uid, e.tokens.tolist(), e.reward) for e in result.experiences] for result in results
    ]


def test_a_step_is_the_same_whoever_is_killed_in_it(workers) -> None:
    engine, runner, scheduler = workers
    undisturbed = scheduler.run(requests())
    assert [result.failure for result in undisturbed] == [None] * 16

    for worker in (engine, runner):
        lost = worker.facts().pid
        threading.Timer(0.02, os.kill, args=(lost, signal.SIGKILL)).start()
        results = scheduler.run(requests())

        assert said(results) == said(undisturbed)
        assert worker.facts().pid != lost
