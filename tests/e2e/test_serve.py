"""``trinity serve`` as a user has it: a process, clients, a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.experience import Experience
from trinity_testing.history import read_history

KEY = "a-key-of-the-test"
pytestmark = pytest.mark.slow


class Service:
    """A service in a process of its own."""

    def __init__(self, forks: Callable[..., dict[str, int]], config: Path, said: Path) -> None:
        self._forks = forks
        self._said = said
        self.code: int | None = None
        keys = {"TRINITY_SERVE_KEYS": KEY}
        self.pid = forks(config=str(config), command="serve", said=str(said), env=keys)["pid"]
        found = self.until(lambda: re.search(r"serving .* at (http://\S+)/v1", self.said))
        self.url = found.group(1)

    @property
    def said(self) -> str:
        return self._said.read_text() if self._said.exists() else ""

    def until(self, condition, seconds: float = 60):
        limit = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < limit, self.said
            assert "Error" not in self.said, self.said
            time.sleep(0.05)
        return found

    def ask(self, path: str, body=None, **headers: str):
        raw = None if body is None else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {KEY}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=raw, headers=given)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def run(self, name: str, reward: float, *, model, task: str = "") -> None:
        """Make a run of one call, and reward it."""
        body = {"model": str(model), "messages": [{"role": "user", "content": f"{name} + 1 ="}]}
        of_task = {"X_Trinity_Task": task} if task else {}
        self.ask("/v1/chat/completions", body, X_Trinity_Run=name, **of_task)
        self.ask("/feedback", {"run": name, "reward": reward})

    def end(self, number: signal.Signals) -> int:
        if self.code is None:
            os.kill(self.pid, number)
            self.code = self._forks(wait=self.pid)["code"]
        return self.code


@pytest.fixture
def serve(forks, tmp_path):
    """Return a function that starts a service; what is left of it is killed."""
    started: list[Service] = []

    def start(config: Path) -> Service:
        started.append(Service(forks, config, tmp_path / f"{len(started)}.said"))
        return started[-1]

    yield start
    for one in started:
        one.end(signal.SIGKILL)


@pytest.fixture
def config_dict(config_dict):
    """Return a service that trains on batches of eight."""
    del config_dict["buffer"]["explorer_input"]
    config_dict["buffer"] = {"train_batch_size": 8}
    config_dict["explorer"] = {"proxy_port": 0}
    config_dict["trainer"] = {"save_interval": 0}
    return config_dict


def trained_runs(run_dir) -> Counter:
    """Return how often each run was trained, by its number."""
    if not (run_dir / "history.jsonl").exists():
        return Counter()
    return Counter(int(eid.split("/")[2]) for step in read_history(run_dir) for eid in step)


def feedback_kill_commit(serve, config, run_dir, *, model, num_runs: int) -> None:
    service = serve(config)
    for number in range(num_runs):
        service.run(str(number), float(number % 2), model=model)
    assert service.end(signal.SIGKILL) == -9
    assert not trained_runs(run_dir)

    service = serve(config)
    assert service.ask("/commit", {}) == {"runs": num_runs, "experiences": num_runs}
    service.until(lambda: sum(trained_runs(run_dir).values()) == num_runs)
    assert service.ask("/commit", {})["runs"] == 0

    assert service.end(signal.SIGKILL) == -9  # trained, and no checkpoint holds it
    service = serve(config)
    service.until(lambda: sum(trained_runs(run_dir).values()) == num_runs)
    assert service.end(signal.SIGTERM) == 130, service.said

    assert trained_runs(run_dir) == dict.fromkeys(range(1, num_runs + 1), 1)
    port = int(service.url.rpartition(":")[2])
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_rewarded_runs_are_trained_once_whatever_the_service_is_killed_at(
    config_dict, write_yaml, run_dir, serve, tiny_model, status_of
) -> None:
    config = write_yaml(config_dict)

    feedback_kill_commit(serve, config, run_dir, model=tiny_model, num_runs=4)

    assert status_of()["status"] == "interrupted"
    assert status_of()["trained_experiences"] == 4
    saved = (run_dir / "latest_checkpointed_iteration.txt").read_text()
    assert saved == "1\n"


@pytest.mark.acceptance
def test_fifty_feedbacks_are_trained_once_in_spite_of_a_kill(
    config_dict, write_yaml, run_dir, serve, tiny_model
) -> None:
    began = time.perf_counter()

    feedback_kill_commit(serve, write_yaml(config_dict), run_dir, model=tiny_model, num_runs=50)

    seconds = time.perf_counter() - began
    sys.stdout.write(f"50 feedbacks, 2 kills, 50 trained once, {seconds:.0f} s\n")


@pytest.mark.acceptance
@pytest.mark.parametrize("is_forgetful", [False, True])
def test_kills_at_any_moment_lose_no_rewarded_run_and_train_none_twice(
    config_dict, write_yaml, run_dir, serve, tiny_model, is_forgetful
) -> None:
    """Kill the service again and again while four runs a round are made, rewarded, committed."""
    config_dict["trainer"]["save_interval"] = 1
    if is_forgetful:  # each start forgets all that its checkpoint was trained on
        config_dict["trainer"]["max_checkpoints_to_keep"] = 1
        config_dict["explorer"]["keep_runs_s"] = 0.1
    config = write_yaml(config_dict)
    rewarded: set[str] = set()
    for attempt in range(8):
        service, kill_at = serve(config), time.monotonic() + 0.15 * attempt
        with suppress(OSError, urllib.error.URLError):
            for number in range(40):
                if time.monotonic() > kill_at and number:
                    service.end(signal.SIGKILL)
                name = f"{attempt}-{number}"
                service.run(name, float(number % 2), model=tiny_model)
                rewarded.add(name)
                if number % 4 == 3:
                    service.ask("/commit", {})
        service.end(signal.SIGKILL)

    service = serve(config)
    service.ask("/commit", {})
    service.until(lambda: sum(trained_runs(run_dir).values()) >= len(rewarded))
    assert service.end(signal.SIGTERM) == 130

    counts = trained_runs(run_dir)
    assert set(counts.values()) == {1}
    # A kill may fall between a reward on the disk and its answer: that run counts too.
    assert len(rewarded) <= len(counts) <= len(rewarded) + 8
    with sqlite3.connect(run_dir / "buffer" / "serve.db") as db:
        gone = dict(db.execute("SELECT what, count FROM forgotten").fetchall()).get("runs", 0)
    assert (gone > 0) == is_forgetful
    said = f"8 kills, {len(rewarded)} runs rewarded, {len(counts)} trained once, {gone} forgotten"
    sys.stdout.write(f"{said}\n")


@pytest.mark.acceptance
def test_no_reply_is_of_two_versions_of_the_weights(
    config_dict, write_yaml, run_dir, serve, tiny_model
) -> None:
    """Ask without pause while the weights change: each reply was sampled by one of them whole."""
    config_dict["model"]["max_response_tokens"] = 64
    config_dict["algorithm"]["optimizer"]["lr"] = 0.01
    config_dict["trainer"] = {"save_interval": 1}
    service, is_over = serve(write_yaml(config_dict)), threading.Event()

    def ask_on(name: str) -> None:
        number = 0
        while not is_over.is_set():
            service.run(f"{name}-{number}", float(number % 2), model=tiny_model)
            number += 1

    asking = [threading.Thread(target=ask_on, args=(name,), daemon=True) for name in "abc"]
    for thread in asking:
        thread.start()
    for step in range(1, 5):
        time.sleep(1)
        service.ask("/commit", {})
        service.until(lambda step=step: (run_dir / f"global_step_{step}").exists())
    is_over.set()
    for thread in asking:
        thread.join()
    assert service.end(signal.SIGTERM) == 130

    with sqlite3.connect(run_dir / "buffer" / "serve.db") as db:
        stored = db.execute("SELECT experiences FROM exchanges").fetchall()
    by_version: dict[int, list[Experience]] = {}
    for experience in (one for (raw,) in stored for one in Experience.deserialize_many(raw)):
        by_version.setdefault(experience.info["model_version"], []).append(experience)
    assert len(by_version) > 2
    worst = 0.0
    for version, experiences in by_version.items():
        saved = run_dir / f"global_step_{version}" / "actor" / "huggingface"
        path = saved if saved.exists() else tiny_model
        assert saved.exists() or version == 0
        worst = max(worst, differs(path, experiences))
    assert worst < 1e-3
    sys.stdout.write(
        f"{len(stored)} replies of {len(by_version)} versions, each of one: log-probabilities "
        f"differ by {worst:.1e} at most\n"
    )


def differs(path: Path, experiences: list[Experience]) -> float:
    """Return how far the recorded log-probabilities are from those of a saved model."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    worst = 0.0
    for experience in experiences:
        start = experience.prompt_length
        with torch.no_grad():
            logits = model(experience.tokens[None]).logits[0, start - 1 : -1]
        found = logits.log_softmax(-1).gather(-1, experience.tokens[start:, None])[:, 0]
        worst = max(worst, float((found - experience.logprobs).abs().max()))
    return worst


@pytest.mark.acceptance
def test_without_a_trainer_what_is_committed_is_stored_once(
    config_dict, write_yaml, run_dir, serve, tiny_model, tmp_path
) -> None:
    del config_dict["trainer"]
    stored = tmp_path / "collected.jsonl"
    buffer = {"name": "collected", "storage_type": "file", "path": str(stored)}
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": buffer}
    config = write_yaml(config_dict)
    service = serve(config)
    service.run("a", 1.0, model=tiny_model)
    service.ask("/commit", {})
    service.until(lambda: stored.exists() and stored.read_text().endswith("\n"))
    service.end(signal.SIGKILL)

    service = serve(config)
    service.run("b", 0.0, model=tiny_model)
    service.ask("/commit", {})
    service.until(lambda: stored.exists() and stored.read_text().count("\n") == 2)
    assert service.end(signal.SIGTERM) == 130

    rows = [json.loads(line) for line in stored.read_text().splitlines()]
    assert [row["info"]["run"] for row in rows] == ["a", "b"]


REWARD = '''
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("told_reward")
class ToldReward(RewardFn):
    """Says what it was given: even tokens, 10 for each letter of the truth, 100 for a prompt."""

    def __call__(self, *, response_token, prompt, truth, **kwargs) -> dict[str, float]:
        even = sum(int(token) % 2 == 0 for token in response_token) / 8
        return {"even": even, "truth": 10.0 * len(truth or ""), "prompt": 100.0 * ("a-1" in prompt)}
'''


@pytest.mark.acceptance
def test_what_a_service_sampled_is_scored_with_another_reward_and_trained_on(
    config_dict, write_yaml, run_dir, serve, tiny_model, plugin_dir, trinity, tmp_path
) -> None:
    service = serve(write_yaml(config_dict))
    for name in ("a-1", "a-2", "a-3", "b-1", "b-2"):
        service.run(name, float(name[-1] == "1"), model=tiny_model, task=name[0])
    service.ask("/commit", {})
    service.until(lambda: sum(trained_runs(run_dir).values()) == 5)
    assert service.end(signal.SIGTERM) == 130
    truths, to = tmp_path / "truths.jsonl", tmp_path / "told"
    truths.write_text('{"task": "a", "response": "xyz"}\n')
    folder = plugin_dir(REWARD, "rewards_of_test.py")

    ended = trinity(
        *("rescore", run_dir, "--reward", "told_reward", "--plugin-dir", folder),
        *("--tasks", truths, "--to", to),
    )

    assert ended.code == 0, ended.stderr
    assert "5 rollouts, 2 groups" in ended.stdout
    assert "note: 2 rollouts are of tasks without a truth" in ended.stdout
    rows = [json.loads(line) for line in (to / "experiences.jsonl").read_text().splitlines()]
    parts = {row["info"]["run"]: row["metrics"] for row in rows}
    assert {name: one["truth"] for name, one in parts.items()} == {
        "a-1": 30.0, "a-2": 30.0, "a-3": 30.0, "b-1": 0.0, "b-2": 0.0,
    }  # fmt: skip
    assert [name for name, one in parts.items() if one["prompt"]] == ["a-1"]
    for row in rows:
        said = row["tokens"][row["prompt_length"] :]
        assert row["metrics"]["even"] == sum(token % 2 == 0 for token in said) / 8
        assert row["reward"] == pytest.approx(sum(row["metrics"].values()))
    trained = trinity("run", "--local", "--config", to / "run.yaml")
    assert trained.code == 0, trained.stdout + trained.stderr
    metrics = run_dir.with_name("told") / "monitor" / "metrics.jsonl"
    (step,) = [
        row for row in map(json.loads, metrics.read_text().splitlines()) if row["role"] == "trainer"
    ]
    # the first step's weights are those that sampled the rows
    assert step["actor/rollout_correction/weight_mean"] == pytest.approx(1.0, abs=1e-5)
    assert step["actor/grad_norm"] > 0
