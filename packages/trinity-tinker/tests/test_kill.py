"""The server is killed again and again; the client lives on, and nothing is lost."""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

tinker = pytest.importorskip("tinker", reason="pip install 'trinity-tinker[sdk]'")

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
NUM_STEPS = 12
MARK = 380  # a target of a pass that kills the server, as one that takes all memory


def done(given):
    """Return a client that the SDK creates: 0.38 gives a future of it, 0.36 the client itself."""
    return given.result() if hasattr(given, "result") else given


# Imports once, and runs the command in a fork for each line that it reads.
LAUNCHER = """
import os, signal, sys
import peft, torch, transformers
from trinity_tinker import base_model, run_states, server
from trinity_tinker.tinker_command import app

backward = run_states.backward

def killed_by_a_mark(trainer, run, rows, loss_of_row, **how):
    if any({mark} in row.targets_N for row in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return backward(trainer, run, rows, loss_of_row, **how)

run_states.backward = killed_by_a_mark

for line in sys.stdin:
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
        app(sys.argv[1:])
    os.waitpid(child, 0)
    print("over", flush=True)
""".replace("{mark}", str(MARK))


class ServerProcess:
    """``trinity tinker serve`` at one port, which is started again after each kill."""

    def __init__(self, models: Path, data: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-c", LAUNCHER, "serve"]
        command += ["--model", f"{NAME}={models / NAME}", "--data", str(data)]
        command += ["--port", str(self.port)]
        self._launcher = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRINITY_TINKER_KEYS": KEY, "OMP_NUM_THREADS": "1"},
        )
        self.start()

    def start(self) -> None:
        self._launcher.stdin.write("start\n")
        self._launcher.stdin.flush()
        self._child = int(self._launcher.stdout.readline())
        line = self._launcher.stdout.readline()
        assert re.search(r"at http://127\.0\.0\.1:\d+;", line), line

    def kill(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        assert self._launcher.stdout.readline() == "over\n"

    def close(self) -> None:
        self.kill()
        self._launcher.stdin.close()
        assert self._launcher.wait(30) == 0
        self._launcher.stdout.close()


def a_datum(step: int):
    tokens = [10 + (7 * step + place) % 300 for place in range(12)]
    return datum_of(tokens)


def datum_of(tokens: list[int]):
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
    )


class Script:
    """What the client does, and how many of its calls were answered so far."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.num_done = 0
        self.path = ""
        self.samples: list[list[int]] = []

    def run(self) -> None:
        service = tinker.ServiceClient(base_url=f"http://127.0.0.1:{self._port}", api_key=KEY)
        run = done(service.create_lora_training_client(base_model=NAME, rank=4, seed=1))
        for step in range(NUM_STEPS):
            passes = [
                run.forward_backward([a_datum(2 * step + part)], "cross_entropy")
                for part in range(2)
            ]
            stepped = run.optim_step(tinker.AdamParams(learning_rate=1e-2))
            for future in (*passes, stepped):
                future.result()
                self.num_done += 1
            if step % 4 == 3:
                run.save_state(f"step-{step}").result()
                self._sample(run)
        self.path = run.save_state("final").result().path

    def _sample(self, run) -> None:
        sampler = done(run.save_weights_and_get_sampling_client())
        prompt = tinker.ModelInput.from_ints([10, 11, 12])
        params = tinker.SamplingParams(max_tokens=8, seed=3, stop=[])
        self.samples.append(sampler.sample(prompt, 1, params).result().sequences[0].tokens)
        self.num_done += 1


def adapter_digests(data: Path) -> dict[str, str]:
    """Return the SHA-256 of each checkpoint's adapter, by its name."""
    files = sorted((data / "checkpoints").glob("*/weights/*/adapter/adapter_model.safetensors"))
    return {
        file.parent.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def is_nearly_given_up(data: Path) -> bool:
    """Return whether a request may be killed once more, and is given up then."""
    query = (
        "SELECT 1 FROM requests WHERE finished IS NULL "
        "AND kills >= CASE kind WHEN 'sample' THEN 1 ELSE 2 END"
    )
    with closing(sqlite3.connect(data / "tinker.db", timeout=30)) as journal:
        return journal.execute(query).fetchone() is not None


@pytest.fixture(scope="module")
def undisturbed(models: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return what the client gets where nothing is killed, and its checkpoints."""
    data = tmp_path_factory.mktemp("undisturbed")
    server = ServerProcess(models, data)
    script = Script(server.port)
    script.run()
    server.close()
    return script.samples, adapter_digests(data)


@pytest.mark.parametrize(
    ("seed", "num_kills"),
    [(1, 2), pytest.param(2, 20, marks=pytest.mark.acceptance)],
    ids=["twice", "twenty times"],
)
def test_a_client_notices_no_kill_and_its_adapters_are_bit_for_bit_the_same(
    seed, num_kills, models, undisturbed, tmp_path
):
    rng = random.Random(seed)
    server = ServerProcess(models, tmp_path)
    script = Script(server.port)
    client = threading.Thread(target=script.run, daemon=True)
    client.start()
    num_calls = 3 * NUM_STEPS + NUM_STEPS // 4
    moments = sorted(rng.sample(range(num_calls - 1), num_kills))
    num_killed = 0
    for moment in moments:
        while script.num_done < moment and client.is_alive():
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.05))
        while is_nearly_given_up(tmp_path):
            time.sleep(0.002)
        if client.is_alive():
            server.kill()
            num_killed += 1
            server.start()
    client.join(300)
    server.close()
    samples, digests = undisturbed

    assert not client.is_alive()
    assert script.path.endswith("/weights/final")
    assert num_killed == num_kills
    assert script.samples == samples
    assert adapter_digests(tmp_path) == digests
    assert len(digests) == NUM_STEPS // 4 + 1


def test_a_pass_that_kills_the_server_each_time_is_given_up_and_another_run_goes_on(
    models, tmp_path
):
    server = ServerProcess(models, tmp_path)
    service = tinker.ServiceClient(base_url=f"http://127.0.0.1:{server.port}", api_key=KEY)
    deadly, other = (
        done(service.create_lora_training_client(base_model=NAME, rank=4, seed=seed))
        for seed in range(2)
    )
    killing = deadly.forward_backward([datum_of([10, 11, MARK])], "cross_entropy")
    waiting = other.forward_backward([a_datum(1)], "cross_entropy")
    for _ in range(3):
        server.wait()
        server.start()
    with pytest.raises(tinker.RequestFailedError, match="killed 3 times while executing this"):
        killing.result(60)
    loss = waiting.result(60).metrics["loss:sum"]
    again = deadly.forward_backward([a_datum(1)], "cross_entropy").result(60)
    server.close()

    assert again.metrics["loss:sum"] == pytest.approx(loss, rel=1e-3)
