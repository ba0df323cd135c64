"""Secrets are planted wherever a configuration may hold them; nothing that a run leaves has one."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import urllib.request
import zlib
from contextlib import closing
from urllib.parse import quote

import pytest
import yaml

pytestmark = pytest.mark.slow

PLANTED = {
    "PLANTED_JUDGE_KEY": "sk-planted-judge-4711",  # by an interpolation, in env_vars
    "PLANTED_LOGIN": "planted/login+4711",  # by one whose variable is not named like a secret
    "ENVIRONMENT_TOKEN": "planted-token-4711",  # in the environment alone
    "literal": "planted-literal-4711",
    "url": "planted@url:4711",
    "bearer": "planted-bearer-4711",
    "declared": "planted-declared-4711",
}
ENVIRONMENT = {name: value for name, value in PLANTED.items() if name.isupper()}

WORKFLOWS = '''
import json
import logging
import os

from trinity.common.workflows import WORKFLOWS, Workflow

logger = logging.getLogger("trinity.planted")


def secrets_of(task):
    args = task.workflow_args
    found = [os.environ["JUDGE_API_KEY"], args["password"], os.environ["ENVIRONMENT_TOKEN"]]
    found += [args["database_url"], args["headers"]["Authorization"], args["code_word"]]
    return found + [args["login_password"]]


@WORKFLOWS.register_module("tells_all")
class TellsAll(Workflow):
    """Its judge answers 401 and echoes the key, in the first run of each task."""

    def run(self):
        told = secrets_of(self.task)
        for one in told:
            logger.warning("asking with %s", one)
            print("asking with", one)
            print(json.dumps({"key": one}), flush=True)
        if self.task.workflow_args.get("fails") or self.run_id_base == 0:
            raise RuntimeError(f"401: Incorrect API key provided: {' '.join(told)}")
        reply = self.model.chat([{"role": "user", "content": self.task.raw_task["question"]}])[0]
        reply.reward = float(len(reply.response_text) % 3)
        reply.info["judge"] = {"said": [f"asked with {one}" for one in told]}
        reply.metrics = {f"judged by {told[0]}": 1.0}
        return [reply]
'''
LATE = '''
import logging
import os

from trinity.common.workflows import WORKFLOWS, Workflow

logger = logging.getLogger("trinity.late")


@WORKFLOWS.register_module("logs_in_late")
class LogsInLate(Workflow):
    """Gets a key after the start of the run; a key stands in the text of its row, too."""

    def run(self):
        os.environ["JUDGE_API_KEY"] = "planted/late+4711"
        for one in (os.environ["JUDGE_API_KEY"], self.task.raw_task["question"]):
            logger.warning("asking with %s", one)
            print("asking with", one, flush=True)
        raise RuntimeError(f"401: planted/late+4711 and {self.task.raw_task['question']}")
'''
IN_A_ROW = "sk-planted4711abcdefgh"  # as a vendor writes it, in a text that no setting names
AGENT = """
import json, os, urllib.request

for name in ("JUDGE_API_KEY", "ENVIRONMENT_TOKEN"):
    print("asking with", os.environ[name], flush=True)
body = {"model": os.environ["TRINITY_MODEL"], "messages": [{"role": "user", "content": "1 + 1 ="}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    data=json.dumps(body).encode(),
    headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
urllib.request.urlopen(request).read()
with open(os.environ["TRINITY_TASK_FILE"]) as file:
    row = json.load(file)
if row["answer"] == "1":
    raise SystemExit("401: " + os.environ["JUDGE_API_KEY"])
with open(os.environ["TRINITY_RESULT_FILE"], "w") as file:
    json.dump({"reward": len(row["question"]) % 3}, file)
"""


@pytest.fixture
def planted(config_dict, taskset, monkeypatch):
    """Return a configuration that holds a secret wherever it may."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    taskset["default_workflow_type"] = "tells_all"
    del taskset["default_reward_fn_type"]
    taskset["workflow_args"] = {
        "password": PLANTED["literal"],
        "login_password": "${oc.env:PLANTED_LOGIN}",
        "database_url": f"postgresql://me:{quote(PLANTED['url'], safe='')}@db.example/runs",
        "headers": {"Authorization": f"Bearer {PLANTED['bearer']}"},
        "code_word": PLANTED["declared"],
    }
    config_dict["log"] = {"secrets": ["code_word"]}
    config_dict["explorer"] |= {
        "env_vars": {"JUDGE_API_KEY": "${oc.env:PLANTED_JUDGE_KEY}"},
        "max_retry_times": 0,
        "max_failed_ratio": 1.0,
    }
    config_dict["data_processor"] = {"experience_pipeline": {"save_input": True}}
    config_dict["monitor"] = {"monitor_type": "tensorboard", "sample_interval": 1}
    config_dict["trainer"] = {"save_interval": 1}
    return config_dict


def all_bytes(directory):
    """Yield each file of a run directory, its compressed parts and rows as they read."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix != ".safetensors":
            yield path, path.read_bytes()
            if path.suffix == ".db":
                yield path, b"".join(map(_readable, _blobs(path)))


def _blobs(path):
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in database.execute(f'SELECT * FROM "{table}"'):
                yield from (one for one in row if isinstance(one, bytes))


def _readable(blob):
    try:
        return zlib.decompress(blob)
    except zlib.error:
        return blob


def found_in(text: bytes) -> list[str]:
    forms = {value: {value, quote(value, safe="")} for value in PLANTED.values()}
    return [value for value, ways in forms.items() if any(way.encode() in text for way in ways)]


def assert_no_secret(directory, *printed: str) -> None:
    leaks = [
        (str(path.relative_to(directory)), found)
        for path, text in all_bytes(directory)
        if (found := found_in(text))
    ]
    assert leaks == []
    assert found_in("".join(printed).encode()) == []
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def ran(config, write_yaml, plugin_dir, trinity, *options):
    folder = plugin_dir(WORKFLOWS)
    return trinity("run", *options, "--config", write_yaml(config), "--plugin-dir", folder)


def test_a_local_run_leaves_no_secret_in_its_directory_nor_on_the_terminal(
    planted, write_yaml, plugin_dir, trinity, run_dir
) -> None:
    ended = ran(planted, write_yaml, plugin_dir, trinity, "--local")

    assert ended.code == 0, ended.stderr
    assert "asking with ****" in ended.stdout
    assert "asking with ****" in (run_dir / "trinity.log").read_text()
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


@pytest.mark.parametrize(
    "place", ["--local", pytest.param("over Ray", marks=[pytest.mark.ray, pytest.mark.acceptance])]
)
def test_a_key_that_comes_late_and_one_in_the_text_of_a_row_leave_in_no_line(
    place, config_dict, taskset, rows, write_yaml, plugin_dir, trinity, run_dir, status_of
) -> None:
    row = {"question": f"say {IN_A_ROW} twice", "answer": "1"}
    rows.write_text((json.dumps(row) + "\n") * 4)
    taskset["default_workflow_type"] = "logs_in_late"
    del taskset["default_reward_fn_type"]
    config_dict["explorer"] |= {"max_retry_times": 0}
    options = ["--local"] if place == "--local" else []
    folder = plugin_dir(LATE)

    ended = trinity("run", *options, "--config", write_yaml(config_dict), "--plugin-dir", folder)

    said = [ended.stdout, ended.stderr, status_of()["error"]]
    said += [path.read_text() for path in run_dir.rglob("*.log")]
    assert ended.code == 1
    assert "401: **** and say **** twice" in status_of()["error"]
    assert "asking with ****" in "".join(said)
    assert [one for one in ("planted/late+4711", IN_A_ROW) if one in "".join(said)] == []


def test_the_configuration_of_a_run_keeps_interpolations_as_written(
    planted, write_yaml, plugin_dir, trinity, run_dir
) -> None:
    ran(planted, write_yaml, plugin_dir, trinity, "--local")

    kept = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert kept["explorer"]["env_vars"] == planted["explorer"]["env_vars"]
    arguments = kept["buffer"]["explorer_input"]["tasksets"][0]["workflow_args"]
    assert arguments == {
        "password": "****",
        "login_password": "${oc.env:PLANTED_LOGIN}",
        "database_url": "postgresql://me:****@db.example/runs",
        "headers": {"Authorization": "****"},
        "code_word": "****",
    }


def test_the_key_that_a_judge_echoes_is_masked_in_the_error_of_a_failed_run(
    planted, taskset, write_yaml, plugin_dir, trinity, run_dir, status_of
) -> None:
    taskset["workflow_args"]["fails"] = True
    planted["explorer"]["max_failed_ratio"] = 0.1

    ended = ran(planted, write_yaml, plugin_dir, trinity, "--local")

    assert ended.code == 1
    assert "401: Incorrect API key provided: ****" in ended.stderr
    assert "401: Incorrect API key provided: ****" in status_of()["error"]
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


@pytest.mark.acceptance
def test_a_run_with_a_ledger_leaves_no_secret(
    planted, write_yaml, plugin_dir, trinity, run_dir
) -> None:
    planted["buffer"]["trainer_input"] = {"experience_buffer": {"storage_type": "sql"}}

    ended = ran(planted, write_yaml, plugin_dir, trinity, "--local")

    assert ended.code == 0, ended.stderr
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


@pytest.mark.acceptance
@pytest.mark.ray
def test_a_run_over_a_ray_that_others_started_leaves_no_secret_in_the_logs_of_its_workers(
    planted, write_yaml, plugin_dir, trinity, run_dir, ray_cluster
) -> None:
    planted["explorer"]["env_vars"]["ENVIRONMENT_TOKEN"] = "${oc.env:ENVIRONMENT_TOKEN}"

    ended = ran(planted, write_yaml, plugin_dir, trinity)

    assert ended.code == 0, ended.stderr
    logs = "".join(path.read_text() for path in (run_dir / "logs").iterdir())
    assert "asking with ****" in logs
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


@pytest.mark.acceptance
def test_an_agent_that_prints_its_key_leaves_none(
    planted, taskset, write_yaml, plugin_dir, trinity, run_dir, tmp_path
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    taskset["default_workflow_type"] = "agent_workflow"
    taskset["workflow_args"] = {"command": ["python", "agent.py"]}

    ended = ran(planted, write_yaml, plugin_dir, trinity, "--local")

    assert ended.code == 0, ended.stderr
    assert "401: ****" in (run_dir / "trinity.log").read_text()
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


HARBOR_TASK = {
    "task.toml": f"""
[environment]
docker_image = "debian"
workdir = "/app"
env = {{JUDGE_API_KEY = "{PLANTED["PLANTED_JUDGE_KEY"]}"}}
""",
    "instruction.md": "1 + 1 =",
    "tests/test.sh": "#!/bin/sh\necho $JUDGE_API_KEY\necho 1 > /logs/verifier/reward.txt\n",
}
HARBOR_AGENT = """
import json, os, sys, urllib.request

print("asking with", os.environ["JUDGE_API_KEY"], *sys.argv[1:], flush=True)
body = {"model": os.environ["TRINITY_MODEL"], "messages": [{"role": "user", "content": "1 + 1 ="}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    data=json.dumps(body).encode(),
    headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
urllib.request.urlopen(request).read()
raise SystemExit("401: " + os.environ["JUDGE_API_KEY"])
"""


@pytest.mark.acceptance
def test_an_agent_in_a_sandbox_that_prints_its_keys_leaves_none(
    planted, taskset, rows, write_yaml, plugin_dir, trinity, run_dir, tmp_path
) -> None:
    missing = pytest.importorskip("trinity_envs_harbor.layout").missing_sandbox()
    if missing:
        pytest.skip(missing)
    for name, text in HARBOR_TASK.items():
        (tmp_path / "task" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "task" / name).write_text(text)
    (tmp_path / "agent.py").write_text(HARBOR_AGENT)
    row = {"question": "1 + 1 =", "answer": "2", "task_dir": str(tmp_path / "task")}
    rows.write_text((json.dumps(row) + "\n") * 4)
    taskset["default_workflow_type"] = "harbor_workflow"
    taskset["workflow_args"] = {
        "agent": "command",
        "command": ["python", "agent.py", f"--password={PLANTED['literal']}"],
        "images": {"*": "host"},
    }

    ended = ran(planted, write_yaml, plugin_dir, trinity, "--local")

    assert ended.code == 0, ended.stderr
    assert (
        "It printed: asking with **** --password=****\n401: ****"
        in (run_dir / "trinity.log").read_text()
    )
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


def test_a_task_that_is_debugged_prints_no_secret(
    planted, write_yaml, plugin_dir, trinity, tmp_path
) -> None:
    folder = plugin_dir(WORKFLOWS)

    ended = trinity("debug", write_yaml(planted), "--say", "7", "--plugin-dir", folder)

    assert "401: Incorrect API key provided: ****" in ended.stdout + ended.stderr
    assert found_in((ended.stdout + ended.stderr).encode()) == []


@pytest.mark.acceptance
def test_a_service_leaves_no_key_in_its_directory(
    planted, write_yaml, run_dir, tmp_path, tiny_model
) -> None:
    del planted["buffer"]["explorer_input"], planted["data_processor"]
    planted["buffer"] = {"train_batch_size": 2}
    planted["explorer"]["proxy_port"] = 0
    command = [sys.executable, "-m", "trinity", "serve", "--config", write_yaml(planted)]
    env = os.environ | {"TRINITY_SERVE_KEYS": PLANTED["declared"], "PYTHONUNBUFFERED": "1"}
    said = tmp_path / "said"
    with said.open("w") as file:
        service = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=file, stderr=file)
    try:
        url = until(lambda: re.search(r"serving .* at (http://\S+)/v1", said.read_text()))[1]
        for run in "abcd":
            body = {"model": str(tiny_model), "messages": [{"role": "user", "content": "1 + 1 ="}]}
            ask(f"{url}/v1/chat/completions", body, run=run)
            ask(f"{url}/feedback", {"run": run, "reward": float(run in "ab")})
        ask(f"{url}/commit", {})
        until((run_dir / "global_step_1").exists)
    finally:
        service.send_signal(signal.SIGTERM)
        code = service.wait(60)

    assert code == 130, said.read_text()
    assert_no_secret(run_dir, said.read_text())


def ask(url, body, *, run=""):
    headers = {"Authorization": f"Bearer {PLANTED['declared']}", "X-Trinity-Run": run}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def until(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return found


@pytest.mark.acceptance
def test_a_run_that_resumes_compares_secrets_without_having_kept_them(
    planted, write_yaml, plugin_dir, trinity, run_dir, monkeypatch
) -> None:
    planted["buffer"]["total_steps"] = 1
    ran(planted, write_yaml, plugin_dir, trinity, "--local")
    planted["buffer"]["total_steps"] = 2
    monkeypatch.setenv("PLANTED_LOGIN", "another login of 4712")

    ended = ran(planted, write_yaml, plugin_dir, trinity, "--local")

    changed = "changed since the last start: buffer.explorer_input.tasksets (values not shown)"
    assert changed in ended.stdout
    assert "going on after" in ended.stdout
    assert_no_secret(run_dir, ended.stdout, ended.stderr)


def test_config_show_keeps_interpolations_and_masks_secrets(
    planted, write_yaml, plugin_dir, trinity
) -> None:
    file = write_yaml(planted)

    shown = trinity("config", "show", file, "--plugin-dir", plugin_dir(WORKFLOWS))
    as_json = trinity("config", "show", file, "--json", "--plugin-dir", plugin_dir(WORKFLOWS))

    assert (shown.code, as_json.code) == (0, 0)
    assert "explorer.env_vars.JUDGE_API_KEY = '${oc.env:PLANTED_JUDGE_KEY}'" in shown.stdout
    assert "workflow_args.password = '****'" in shown.stdout
    assert found_in((shown.stdout + as_json.stdout).encode()) == []


def test_a_problem_of_the_configuration_is_told_without_the_secret(
    planted, taskset, write_yaml, plugin_dir, trinity
) -> None:
    planted["explorer"]["max_timeout"] = {"password": PLANTED["literal"]}

    ended = trinity("config", "check", write_yaml(planted))

    assert ended.code == 1
    assert "explorer.max_timeout" in ended.stdout
    assert found_in((ended.stdout + ended.stderr).encode()) == []
