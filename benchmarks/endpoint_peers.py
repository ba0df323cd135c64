"""The servers that ``endpoint_table.py`` asks: how each is started, and what it has used."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

HERE = Path(__file__).parent
NUM_WORDS = (160, 300)  # of a chat: 500 to 900 tokens of the tokenizer that is made here
START_S = 240.0
QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
VLLM = {
    **QUIET,
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What some calls cost."""

    front_ms: float  # CPU of the process that speaks HTTP, a request
    cpu_ms: float  # of all processes of the server
    took: list[float]  # seconds of each call
    failed: list[str]

    @property
    def row(self) -> tuple[float, float, float, float]:
        """Return the columns of the table."""
        ordered = sorted(self.took)
        slow = ordered[int(0.95 * (len(ordered) - 1))]
        return self.front_ms, self.cpu_ms, 1e3 * statistics.median(ordered), 1e3 * slow


class Peer:
    """A server in processes of its own."""

    url = ""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        raise NotImplementedError

    def opened(self, runs: int, *, records: bool) -> list[str]:
        """Return a key for each run."""
        return ["none"] * runs

    def close_runs(self) -> None:
        """End the runs."""

    def load(
        self,
        *,
        runs: int,
        conversations: int,
        turns: int,
        fields: dict[str, object],
        records: bool = True,
    ) -> Load:
        """Let so many clients talk at once."""
        keys = self.opened(runs, records=records)
        job = {
            "url": self.url,
            "keys": keys,
            "conversations": conversations,
            "turns": turns,
            "num_words": NUM_WORDS,
            "fields": fields,
        }
        before = self.cpu_s()
        command = [sys.executable, str(HERE / "endpoint_client.py"), json.dumps(job)]
        told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        self.close_runs()
        front, everything = (b - a for a, b in zip(before, self.cpu_s(), strict=True))
        if told["failed"]:
            print(f"{self.name}: {len(told['failed'])} failed: {told['failed'][0]}")
        each = 1e3 / max(len(told["took"]), 1)
        return Load(
            front_ms=front * each,
            cpu_ms=everything * each,
            took=told["took"],
            failed=told["failed"],
        )

    def cpu_s(self) -> tuple[float, float]:
        """Return the CPU seconds of the server's first process, and of all of them."""
        assert self.process is not None
        spent = cpu_of_group(self.process.pid)
        return spent[self.process.pid], sum(spent.values())

    def begin(self, command: list[str], env: dict[str, str], **pipes: Any) -> None:
        """Start a program in a process group of its own."""
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **env},  # noqa: TID251 -- handed to another program
            start_new_session=True,
            text=True,
            **pipes,
        )

    def wait_for(self, path: str) -> None:
        """Wait until the server answers at a path.

        Raises:
            RuntimeError: it does not in time.
        """
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url.removesuffix("/v1") + path, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(1.0)
        raise RuntimeError(f"{self.name} does not answer at {self.url}")

    def __enter__(self) -> Self:
        """Start."""
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.process.wait()


class Ours(Peer):
    """Our endpoint: ``endpoint_server.py``."""

    def __init__(self, name: str, folder: Path, *, python: str, engine: str) -> None:
        super().__init__(name, folder)
        self.python = python
        self.engine = engine
        self.closed: dict[str, Any] = {}

    def start(self) -> None:
        """Start it; it says when it is ready."""
        packages = HERE.parent / "packages"
        sources = [packages / name / "src" for name in ("trinity-core", "trinity-testing")]
        self.begin(
            [self.python, str(HERE / "endpoint_server.py"), str(self.folder), self.engine],
            {**VLLM, "PYTHONPATH": os.pathsep.join(map(str, sources))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._told()

    def opened(self, runs: int, *, records: bool) -> list[str]:
        """Return a key for each run."""
        opened = self._told(f"open {runs} {int(records)}")
        self.url = opened["base_url"]
        return list(opened["keys"])

    def close_runs(self) -> None:
        """End the runs; keep what they recorded."""
        self.closed = self._told("close")

    def _told(self, command: str = "") -> dict[str, Any]:
        assert self.process is not None
        told, said = self.process.stdin, self.process.stdout
        assert told is not None
        assert said is not None
        if command:
            told.write(command + "\n")
            told.flush()
        return dict(json.loads(line_of(said)))


class VLLMServer(Peer):
    """vLLM's OpenAI server with what makes it fast here: in one thread, nothing compiled."""

    def __init__(self, name: str, folder: Path, *, python: str) -> None:
        super().__init__(name, folder)
        self.python = python

    def start(self) -> None:
        """Start the server."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        options = {
            "model": self.folder,
            "served-model-name": "tiny",
            "host": "127.0.0.1",
            "port": port,
            "dtype": "float32",
            "max-model-len": 8192,
            "kv-cache-memory-bytes": 1 << 28,
            "block-size": 32,
        }
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        switches = ["--enforce-eager", "--no-enable-log-requests", "--disable-uvicorn-access-log"]
        module = "vllm.entrypoints.openai.api_server"
        self.begin([self.python, "-m", module, *words, *switches], VLLM, stdout=subprocess.DEVNULL)
        self.wait_for("/health")


class LiteLLM(Peer):
    """LiteLLM's proxy, which answers by itself: no key, no log, no database."""

    def __init__(self, name: str, folder: Path, *, program: str) -> None:
        super().__init__(name, folder)
        self.program = program

    def start(self) -> None:
        """Start the proxy."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        model = {"model": "openai/tiny", "api_key": "none", "mock_response": "go"}
        config = {"model_list": [{"model_name": "tiny", "litellm_params": model}]}
        file = self.folder.with_name("litellm.json")  # JSON is YAML
        file.write_text(json.dumps(config), encoding="utf-8")
        env = {
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        command = [self.program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
        self.begin(command, env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for("/health/liveliness")


def cpu_of_group(group: int) -> dict[int, float]:
    """Return the CPU seconds of each process of a session, on Linux."""
    spent, tick = {}, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == group:
            spent[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / tick
    return spent


def line_of(stream: IO[str]) -> str:
    """Return the next line that is JSON: libraries print too."""
    for line in stream:
        if line.startswith("{"):
            return line
    raise RuntimeError("the server has ended")


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
