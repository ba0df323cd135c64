"""Two worker processes share the tensors of the real vLLM, on a CPU; run by ``nox -s vllm``."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import Structure, WeightSnapshot, WeightVersion
from trinity.errors import EngineBrokenError, ModelError
from trinity_engine_vllm.engine import VLLMEngine

PROMPT = tuple(range(5, 45))
TOLD_ALONE = """
import sys, threading
from trinity_engine_vllm.engine import VLLMEngine

if __name__ == "__main__":
    engine = VLLMEngine(model_path=sys.argv[1], max_model_len=128, tensor_parallel_size=2)
    print("started", flush=True)
    threading.Event().wait()
"""

STOPPED = """
import os, signal, sys
from trinity.common.ports import GenerationRequest
from trinity.errors import EngineBrokenError
from trinity_engine_vllm.engine import VLLMEngine
from trinity_engine_vllm.tensor_parallel import executor_of

if __name__ == "__main__":
    engine = VLLMEngine(model_path=sys.argv[1], max_model_len=128, tensor_parallel_size=2)
    engine.submit(GenerationRequest(prompt_token_ids=(5, 6, 7))).result(60)
    workers = [one.proc for one in executor_of(engine._stepping._engine).workers]
    os.kill(workers[1].pid, signal.SIGSTOP)
    for _ in range(2):
        try:
            engine.submit(GenerationRequest(prompt_token_ids=(5, 6, 7))).result(60)
        except EngineBrokenError as error:
            print("told:", error)
    print("told: there are", [one.pid for one in workers if one.is_alive()])
    engine.close()
    print("told: closed")
"""

STOPPED_WHILE_IDLE = """
import os, signal, sys
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import EngineBrokenError
from trinity_engine_vllm.engine import VLLMEngine
from trinity_engine_vllm.tensor_parallel import executor_of

if __name__ == "__main__":
    engine = VLLMEngine(model_path=sys.argv[1], max_model_len=128, tensor_parallel_size=2)
    tensors = dict(AutoModelForCausalLM.from_pretrained(sys.argv[1]).named_parameters())
    engine.load_weights(WeightSnapshot(version=WeightVersion(1), tensors=tensors))
    workers = [one.proc for one in executor_of(engine._stepping._engine).workers]
    os.kill(workers[1].pid, signal.SIGSTOP)
    for version in (2, 3):
        try:
            engine.load_weights(WeightSnapshot(version=WeightVersion(version), tensors=tensors))
        except EngineBrokenError as error:
            print("told:", error)
    print("told: there are", [one.pid for one in workers if one.is_alive()])
    engine.close()
    print("told: closed")
"""


@pytest.fixture(autouse=True)
def no_memory_is_left_behind():
    before = segments()
    yield
    assert segments() <= before


def segments():
    return {path.name for path in Path("/dev/shm").glob("vllm_dist_*")}


def started_by(pid):
    """Return the processes that a process started, and those that they did, with their names."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listed.splitlines() if "ps -eo" not in line]

    def below(parent):
        own = {int(child): args for child, above, args in rows if int(above) == parent}
        for child in [*own]:
            own |= below(child)
        return own

    return below(pid)


def are_gone(pids, *, limit_s=60.0):
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        if not any(Path(f"/proc/{pid}/cmdline").exists() and is_alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def is_alive(pid):
    try:
        return " Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:2]
    except FileNotFoundError:
        return False


def changed(path, *, factor):
    module = AutoModelForCausalLM.from_pretrained(path)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(factor * weight.std() * torch.randn(weight.shape, generator=generator))
    return module, {name: weight.detach() for name, weight in module.named_parameters()}


def test_two_workers_answer_as_one_take_new_weights_and_are_gone_when_it_is_closed(
    engine, tied, ask, teacher_forced
) -> None:
    beside = engine  # of one process: this one's
    engine = VLLMEngine(model_path=str(tied), max_model_len=128, tensor_parallel_size=2)
    try:
        workers = [pid for pid, name in started_by(os.getpid()).items() if "Worker_TP" in name]
        assert len(workers) == 2
        for reply in engine.submit(ask(n=4, temperature=0.7)).result(60):
            wanted = teacher_forced(tied, (5, 6, 7), reply.token_ids, temperature=0.7)
            assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
        engine.submit(ask(PROMPT)).result(60)

        for version in (1, 2):
            module, tensors = changed(tied, factor=0.5 * version)
            engine.load_weights(WeightSnapshot(version=WeightVersion(version), tensors=tensors))
            for _ in range(2):  # the second finds its prompt in the cache
                (reply,) = engine.submit(ask(PROMPT)).result(60)
                wanted = teacher_forced(module, PROMPT, reply.token_ids)
                assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
                assert reply.weight_version == engine.version == version

        with pytest.raises(ModelError, match="structure cannot be followed here: tensor_para"):
            engine.submit(ask(structure=Structure(kind="regex", text="a")))

        os.kill(workers[1], signal.SIGKILL)
        assert are_gone(workers[1:])
        with pytest.raises(EngineBrokenError, match="vLLM could not"):  # over Ray it ends with that
            engine.submit(ask(task=7)).result(60)
        with pytest.raises(EngineBrokenError, match="vLLM could not"):
            engine.load_weights(WeightSnapshot(version=WeightVersion(3), tensors=tensors))
    finally:
        engine.close()
    assert are_gone(workers)
    assert len(beside.submit(ask()).result(60)) == 1


def test_workers_of_a_process_that_is_killed_are_gone(tied, tmp_path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(TOLD_ALONE)
    with subprocess.Popen(
        [sys.executable, script, tied], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "started\n"
        started = started_by(process.pid)
        assert len(started) >= 2
        os.kill(process.pid, signal.SIGKILL)
    assert are_gone(started)


@pytest.mark.parametrize(
    ("text", "what"), [(STOPPED, "generate"), (STOPPED_WHILE_IDLE, "take new weights")]
)
def test_a_worker_that_is_stopped_is_told_in_vllms_time_and_ended(
    text, what, tied, tmp_path
) -> None:
    script = tmp_path / "stopped.py"
    script.write_text(text)
    env = {**os.environ, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "5"}

    said = subprocess.run(
        [sys.executable, script, tied],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
    )

    silent, broken, there, closed = [
        line for line in said.stdout.splitlines() if line.startswith("told: ")
    ]  # vLLM's log is between
    assert silent.startswith(f"told: vLLM could not {what}: TimeoutError: RPC call to ")
    assert "silent for 5 s" in silent
    assert broken.startswith(f"told: vLLM could not {what}: ")
    assert (there, closed) == ("told: there are []", "told: closed")
