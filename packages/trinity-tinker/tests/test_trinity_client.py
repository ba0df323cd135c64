"""Trinity as a client: `model.tinker` trains and samples with a service, here our own server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch
import yaml
from trinity.common.config import load_config
from trinity.common.config.machine import probe
from trinity.common.config.resolve import resolve
from trinity.common.experience import EID, Experience
from trinity.common.ports import GenerationRequest
from trinity.errors import ConfigError, ModelError
from trinity.extend import get_manager, set_manager
from trinity.runtime.run import run
from trinity.trainer.torch_trainer import TorchTrainer

tinker = pytest.importorskip("tinker", reason="pip install 'trinity-tinker[sdk]'")

from trinity_tinker.client import connection  # noqa: E402
from trinity_tinker.client.connection import connected, end_session  # noqa: E402
from trinity_tinker.client.engine import TinkerEngine  # noqa: E402
from trinity_tinker.client.start import read_state  # noqa: E402
from trinity_tinker.client.trainer import TinkerTrainer  # noqa: E402
from trinity_tinker.client.weights import path_in  # noqa: E402

pytestmark = pytest.mark.sdk

NAME, KEY, NUM_STEPS = "Qwen/Tiny", "tml-of-a-test", 8
PLUGIN = """
from trinity.common.rewards import RewardFn
from trinity.extend import hookimpl
class Letters(RewardFn):
    def __call__(self, response, **kwargs):
        return {"share": sum(one == "e" for one in response) / max(1, len(response))}
@hookimpl
def trinity_reward_fns():
    return {"letters": f"{__name__}:Letters"}
"""


@pytest.fixture
def place(models, server, tmp_path, monkeypatch):
    """Return a folder with the run's files, and a server that has its model."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/letters.py").write_text(PLUGIN)
    rows = [json.dumps({"q": f"say {number}", "a": "e"}) for number in range(64)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    monkeypatch.setenv("TRINITY_PLUGIN_DIRS", str(tmp_path / "plugins"))
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    before = set_manager(None)  # another test may have found the plugins already
    yield tmp_path
    set_manager(before)


@pytest.fixture
def write(place, models, server):
    """Return a function that writes a configuration, with values by path, and gives its file."""

    def write(name, **changes):
        taskset = {"name": "t", "path": str(place / "rows.jsonl")}
        taskset |= {"format": {"prompt_key": "q", "response_key": "a"}}
        taskset |= {"default_workflow_type": "simple_workflow"}
        taskset |= {"default_reward_fn_type": "letters"}
        config = {
            "project": "p",
            "name": name,
            "checkpoint_root_dir": str(place),
            "algorithm": {"algorithm_type": "grpo", "repeat_times": 8, "kl_loss_fn": "none"},
            "model": {"model_path": str(models / NAME), "max_model_len": 64},
            "buffer": {"batch_size": 8, "total_steps": NUM_STEPS},
            "trainer": {"save_interval": 3},
            "synchronizer": {"sync_method": "memory", "sync_interval": 1},
        }
        config["algorithm"]["optimizer"] = {"lr": 0.02}
        config["model"] |= {"max_response_tokens": 8}
        config["model"]["tinker"] = {"enable": True, "rank": 8, "base_url": server.base_url}
        config["buffer"]["explorer_input"] = {"taskset": taskset}
        for path, value in changes.items():
            *parents, last = path.split("__")
            section = config
            for parent in parents:
                section = section.setdefault(parent, {})
            section[last] = value
        file = place / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        return file

    return write


def rewards(place, name):
    lines = (place / "p" / name / "monitor/metrics.jsonl").read_text().splitlines()
    found = {}
    for row in map(json.loads, lines):
        if "rollout/reward/mean" in row:
            found[row["step"]] = row["rollout/reward/mean"]
    return [found[step] for step in sorted(found)]


def killed_after_a_checkpoint(file, folder):
    command = [sys.executable, "-m", "trinity.cli.main", "run", "--config", file, "--local"]
    process = subprocess.Popen([str(part) for part in command], env=dict(os.environ))
    while not list(folder.glob("global_step_3/state.json")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL


TELLS_THE_KEY = """
        logging.getLogger("trinity.letters").warning("asking with %s", os.environ["TINKER_API_KEY"])
"""


def test_neither_the_run_nor_the_service_keeps_the_key(place, write, server):
    plugin = PLUGIN.replace("kwargs):\n", f"kwargs):{TELLS_THE_KEY}")
    (place / "plugins/letters.py").write_text(f"import logging, os\n{plugin}")

    run(write("keyed", buffer__total_steps=2, trainer__save_interval=1), local=True)

    files = [one for one in place.rglob("*") if one.is_file()]
    assert "asking with ****" in (place / "p/keyed/trinity.log").read_text()
    assert {"tinker.db", "state.json"} <= {one.name for one in files}
    assert [one for one in files if KEY.encode() in one.read_bytes()] == []


@pytest.mark.acceptance
def test_grpo_learns_and_a_killed_run_goes_on_and_learns_as_well(place, write):
    run(write("whole"), local=True)
    file = write("killed")
    killed_after_a_checkpoint(file, place / "p/killed")
    result = run(file, local=True)

    assert result.stages[0].train_steps == NUM_STEPS
    for found in (rewards(place, "whole"), rewards(place, "killed")):
        assert len(found) == NUM_STEPS
        assert found[0] < 0.1
        assert found[-1] > 0.5

    trained = str(result.stages[0].checkpoint / "actor/huggingface")
    changes = {"model__model_path": trained, "buffer__total_steps": 1}
    run(write("next", **changes), local=True)
    assert rewards(place, "next")[0] > 0.5  # it starts from the adapter of the checkpoint
    changes["model__tinker"] = {"enable": True, "rank": 4, "base_url": server_of(write)}
    with pytest.raises(ConfigError, match=r"model\.tinker\.rank is 4"):
        run(write("other_rank", **changes), local=True)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("algorithm__algorithm_type", "ppo", "advantage_fn ppo needs 'values'"),
        (
            "algorithm__entropy_loss_fn_args",
            {"entropy_coef": 0.1},
            r"entropy_coef is 0\.1\. An entropy needs .*--set algorithm.*entropy_coef=0",
        ),
        ("model__temperature", 0.7, "model.temperature is 0.7"),
        ("model__repetition_penalty", 1.2, "model.repetition_penalty is 1.2"),
        ("model__min_response_tokens", 2, "model.min_response_tokens is 2"),
        ("model__lora_configs", [{"name": "a"}], "model.lora_configs: the service makes"),
        ("model__tinker", {"enable": True, "base_url": "http://127.0.0.1:9"}, "no Tinker service"),
    ],
)
def test_a_setting_that_the_service_does_not_have_is_refused_before_a_run_starts(
    place, write, server, path, value, told
):
    with pytest.raises(ConfigError, match=told):
        run(write("refused", **{path: value}), local=True)

    assert server._service.store.rows("SELECT id FROM models") == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 500 Oops\r\n\r\n", "HTTP Error 500"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP Error 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "IncompleteRead"),
        (b"SSH-2.0-OpenSSH_9\r\n", "SSH-2.0"),
    ],
)
def test_an_address_at_which_something_else_answers_is_named_at_once(answer, told):
    def talk():
        link, _ = listener.accept()
        link.recv(9999)
        link.sendall(answer)
        link.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"no Tinker service answers at {url}: .*{told}"):
            connected(url)
        thread.join()
    with pytest.raises(ConfigError, match="nonnumeric port"):
        connected("http://127.0.0.1:port")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "refuses the key in TINKER_API_KEY: .*401"),
        (403, "refuses the key in TINKER_API_KEY: .*403"),
        (404, "no connection to the service: .*404"),
        (503, r"alive \(healthz\), and has not answered get_server_capabilities for 0.5 s"),
    ],
)
def test_a_service_of_which_only_healthz_answers_is_named_at_once(place, monkeypatch, status, told):
    """The SDK repeats what fails with 503 for five minutes."""

    class Dead(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200 if self.path.endswith("/healthz") else now[0])
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET

        def log_message(self, *_given):
            """Keep quiet."""

    now = [status]
    monkeypatch.setattr(connection, "_FIRST_S", 0.5)
    with ThreadingHTTPServer(("127.0.0.1", 0), Dead) as dead:
        threading.Thread(target=dead.serve_forever, daemon=True).start()
        with pytest.raises(ConfigError, match=told):
            connected(f"http://127.0.0.1:{dead.server_port}")
        now[0] = 404  # which ends the SDK's own attempts: until then it connects to nothing else
        for thread in threading.enumerate():
            if thread.name == "tinker-first-answer":
                thread.join()
        dead.shutdown()


@pytest.mark.parametrize(
    ("rank", "told"),
    [
        (0, "model.tinker.rank: should be greater than or equal to 1"),
        (5000, "model.tinker.rank 5000: lora_config.rank is 5000"),
    ],
)
def test_a_rank_that_an_adapter_cannot_have_is_named_by_its_key(place, write, server, rank, told):
    tinker_section = {"enable": True, "rank": rank, "base_url": server.base_url}
    with pytest.raises((ConfigError, ModelError)) as caught:
        run(write("refused", model__tinker=tinker_section), local=True)

    assert told in str(caught.value)


def test_a_run_ends_though_its_service_does_not_hear_that(monkeypatch, caplog):
    monkeypatch.setattr(connection, "_END_S", 0.05)
    end_session(SimpleNamespace(close=lambda status: Future()))

    assert "was not told that the session is over: TimeoutError" in caplog.text


def test_a_model_that_the_service_lacks_is_named_with_those_that_it_has(place, write, models):
    other = models / "Qwen/Other"
    if not other.exists():
        other.symlink_to(models / NAME)
    with pytest.raises(ConfigError, match=f"the Tinker service serves {NAME}"):
        run(write("other", model__model_path=str(other)), local=True)


def test_a_reply_ends_with_the_token_that_completes_a_stop_string(place, models, server):
    engine = TinkerEngine(str(models / NAME), base_url=server.base_url)
    asked = GenerationRequest(prompt_token_ids=(71, 104), max_new_tokens=12, ignore_eos=True)

    def reply(**stops):
        given = replace(asked, ignore_eos=not stops, **stops)
        [completion] = engine.submit(given).result(60)
        return completion

    try:
        whole = reply()
        text = engine._tokenizer.text(whole.token_ids)
        ended = reply(stop=("never there", text[3:5]))
        first = next(
            n for n in range(13) if text[3:5] in engine._tokenizer.text(whole.token_ids[:n])
        )
        by_id = reply(stop_token_ids=(whole.token_ids[2],))
        for odd, told in (
            ({"stop": ("a",), "stop_token_ids": (3,)}, "takes texts or ids. Leave one of them out"),
            ({"stop": ("a",), "ignore_eos": True}, "the end token ends such replies too"),
        ):
            with pytest.raises(ModelError, match=told):
                engine.submit(replace(asked, **{"ignore_eos": False, **odd}))
    finally:
        engine.close()

    assert len(whole.token_ids) == 12
    assert (ended.token_ids, ended.stop_reason) == (whole.token_ids[:first], text[3:5])
    assert by_id.token_ids == whole.token_ids[: whole.token_ids.index(whole.token_ids[2]) + 1]
    assert (ended.finish_reason, by_id.finish_reason, by_id.stop_reason) == ("stop", "stop", None)


@pytest.mark.parametrize("kl", ["none", "k2"])
def test_a_loss_is_that_of_the_trainer_torch(place, write, kl):
    losses = []
    for is_remote in (True, False):
        tinker_section = {"enable": is_remote, "base_url": server_of(write)}
        changes = {"algorithm__kl_loss_fn": kl, "model__tinker": tinker_section}
        config = resolve(load_config(write("loss", **changes)), probe(), manager=get_manager())
        cls = TinkerTrainer if is_remote else TorchTrainer
        trainer = cls(config, model_path=config.model.model_path, total_steps=4, seed=0)
        losses.append(trainer.train_step(experiences(), step=1)["actor/loss"])
        trainer.close()

    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_weights_of_a_checkpoint_do_not_expire_as_those_of_a_weight_sync_do(place, write, server):
    config = resolve(load_config(write("kept")), probe(), manager=get_manager())
    trainer = TinkerTrainer(config, model_path=config.model.model_path, total_steps=4, seed=0)
    synced = path_in(trainer.snapshot(copy=False))
    trainer.save(place)
    trainer.close()
    query = "SELECT path, expires FROM checkpoints"
    expires = {row["path"]: row["expires"] for row in server._service.store.rows(query)}
    start = read_state(place)

    assert expires[synced] is not None
    assert (expires[start.sampler], expires[start.state]) == (None, None)


def test_weights_of_a_sync_expire_soon_once_newer_ones_take_their_place(write, server):
    config = resolve(load_config(write("synced")), probe(), manager=get_manager())
    trainer = TinkerTrainer(config, model_path=config.model.model_path, total_steps=4, seed=0)
    paths = []
    for step in (1, 2):
        paths.append(path_in(trainer.snapshot(copy=False)))
        trainer.train_step(experiences(), step=step)
    trainer.close()
    query = "SELECT path, expires FROM checkpoints"
    left = {row["path"]: row["expires"] - time.time() for row in server._service.store.rows(query)}

    assert 3 * 3600 < left[paths[0]] <= 4 * 3600
    assert left[paths[1]] > 29 * 86400


def test_after_a_load_the_same_version_is_saved_anew(place, write):
    config = resolve(load_config(write("loaded")), probe(), manager=get_manager())
    trainer = TinkerTrainer(config, model_path=config.model.model_path, total_steps=4, seed=0)
    trainer.save(place)
    paths = []
    for _ in range(2):
        trainer.train_step(experiences(), step=1)
        snapshot = trainer.snapshot(copy=False)
        paths.append(path_in(snapshot))
        assert snapshot.version == 1
        trainer.load(place)
    trainer.close()

    assert paths[0] != paths[1]


LOSSES = {  # of the service -> the settings of ppo that are the same loss, here
    "ppo": {"clip_range_low": 0.1, "clip_range_high": 0.3, "clip_ratio_c": 1e9},
    "importance_sampling": {"clip_range_low": 1.0, "clip_range_high": 1e9, "clip_ratio_c": 1e9},
}


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_the_service_makes_the_step_that_the_same_loss_here_makes(write, name, mode):
    found = []
    for server_loss_fn in (name, None):
        section = {"enable": True, "base_url": server_of(write), "server_loss_fn": server_loss_fn}
        changes = {
            "model__tinker": section,
            "algorithm__loss_agg_mode": mode,
            "algorithm__policy_loss_fn_args": {**LOSSES[name], "loss_agg_mode": mode},
            "algorithm__bypass_old_logprobs": True,
        }
        config = resolve(load_config(write("loss", **changes)), probe(), manager=get_manager())
        trainer = TinkerTrainer(config, model_path=config.model.model_path, total_steps=4, seed=0)
        metrics = trainer.train_step(experiences(), step=1)
        again = trainer._scorer.logprobs(trainer.trained_batch())
        trainer.close()
        found.append((metrics["actor/loss"], metrics["actor/rollout_logprob_diff"], again))

    (here, gap, after), (there, other_gap, other_after) = found
    assert here == pytest.approx(there, rel=1e-4, abs=1e-6)
    assert gap == pytest.approx(other_gap, rel=1e-4)
    assert torch.allclose(after, other_after, atol=2e-4)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"server_loss_fn": "dro"}, r"no model\.tinker\.server_loss_fn named 'dro'"),
        ({"kl": "k2"}, r"algorithm\.kl_loss_fn: the service computes ppo alone"),
        ({"type": "sft"}, "takes the place of a policy loss on advantages"),
    ],
)
def test_a_loss_that_the_service_cannot_replace_is_refused(write, changes, told):
    section = {"enable": True, "base_url": server_of(write)}
    section["server_loss_fn"] = changes.get("server_loss_fn", "ppo")
    settings = {"model__tinker": section, "algorithm__kl_loss_fn": changes.get("kl", "none")}
    settings["algorithm__algorithm_type"] = changes.get("type", "grpo")
    config = resolve(load_config(write("loss", **settings)), probe(), manager=get_manager())
    with pytest.raises(ConfigError, match=told):
        TinkerTrainer(config, model_path=config.model.model_path, total_steps=4, seed=0)


def server_of(write):
    return yaml.safe_load(write("any").read_text())["model"]["tinker"]["base_url"]


def experiences():
    return [
        Experience(
            tokens=torch.tensor([71, 104, 101, 32, 113 + row, 117][: 5 + row % 2]),
            prompt_length=2,
            logprobs=[-5.5, -6.0, -5.0, -6.5][: 3 + row % 2],
            reward=float(row % 3),
            eid=EID(batch=1, task=row // 4, run=row % 4),
            info={"model_version": 0},
        )
        for row in range(8)
    ]
