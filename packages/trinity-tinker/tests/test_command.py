"""``trinity tinker serve`` as a user starts and ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from trinity.cli.main import app
from trinity.errors import ConfigError
from trinity_tinker.tinker_command import _keys, _named, serve
from typer.testing import CliRunner

NAME = "Qwen/Tiny"


@pytest.mark.acceptance
def test_the_command_serves_until_it_is_ended_and_goes_on_from_its_folder(models, tmp_path):
    command = [sys.executable, "-m", "trinity", "tinker", "serve", "--port", "0"]
    command += ["--model", f"{NAME}={models / NAME}", "--data", str(tmp_path / "data")]
    sessions = []
    for _ in range(2):
        env = {**os.environ, "TRINITY_TINKER_KEYS": ""}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            try:
                lines = [process.stdout.readline() for _ in range(2)]
                found = re.search(r"at (http://127\.0\.0\.1:\d+);", lines[0])
                key = re.search(r"TINKER_API_KEY=(tml-\S+)", lines[1])
                sessions.append(a_session(found.group(1), key.group(1), known=sessions))
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 0
            finally:
                process.kill()

    assert len(set(sessions)) == 2


def a_session(base_url: str, key: str, *, known: list[str]) -> str:
    """Return a new session; those of the key before are there."""
    import httpx

    with httpx.Client(
        base_url=f"{base_url}/api/v1", headers={"X-API-Key": key}, timeout=60
    ) as http:
        for one in known:
            http.post("/session_heartbeat", json={"session_id": one}).raise_for_status()
        return http.post("/create_session", json={}).json()["session_id"]


@pytest.mark.parametrize("text", ["model", "a/b", "a/b=", "b=path", "a/b/c=path", "/b=path"])
def test_a_model_without_a_name_that_clients_can_load_is_refused(text):
    with pytest.raises(ConfigError, match="ORGANISATION/NAME=PATH"):
        _named(text)


def test_adapters_of_scale_0_which_learn_nothing_are_refused():
    ended = CliRunner().invoke(app, ["tinker", "serve", "--model", "a/b=c", "--lora-alpha", "0"])

    assert ended.exit_code == 2


def test_a_path_may_have_any_letters():
    assert _named("a/b=c/d=e") == ("a/b", "c/d=e")


def test_a_key_that_clients_refuse_is_refused():
    with pytest.raises(ConfigError, match="tml-"):
        _keys("tml-one, two")

    assert _keys(" tml-one ,tml-two,") == ["tml-one", "tml-two"]


def test_two_models_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="names a/b twice"):
        serve(model=["a/b=one", "a/b=two"])
