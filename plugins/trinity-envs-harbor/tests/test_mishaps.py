"""Files of tasks, agents and verifiers that are not as one would wish."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from trinity.errors import ConfigError, EnvError
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.layout import images_for
from trinity_envs_harbor.prepared import problems_of
from trinity_envs_harbor.settings import HarborSettings
from trinity_envs_harbor.task import digest_of
from typer.testing import CliRunner

from .conftest import needs_bwrap, read_rewards

RAW = {"action": "raw", "max_env_steps": 1}
ENVIRONMENT = '[environment]\ndocker_image = "debian"\n'


def told(folder: Path) -> list[str]:
    _, problems = problems_of(folder, {"*": "host"})
    return [str(one).removeprefix(f"{folder}/") for one in problems]


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (f'{ENVIRONMENT}env = ["A=1"]\n', "task.toml:3: environment.env is ['A=1'], which is no"),
        (f"artifacts = 5\n{ENVIRONMENT}", "task.toml:1: the artifact 5 is not understood"),
        (f"artifacts = [5]\n{ENVIRONMENT}", "task.toml:1: the artifact 5 is not understood"),
        (f'artifacts = "/a"\n{ENVIRONMENT}x = 1', "task.toml:4: note: environment.x is not known"),
        (
            f"{ENVIRONMENT}[verifier]\nenvironment_mode = []\n",
            "task.toml:4: verifier.environment_mode: it is []",
        ),
    ],
)
def test_values_of_another_type_are_named_with_their_line(a_task, toml, said):
    found = told(a_task(toml=toml))

    assert len(found) == 1
    assert found[0].startswith(said), found


def test_a_task_that_was_written_on_windows_is_read(a_task):
    folder = a_task(toml="\n", environment__Dockerfile="FROM debian\n")
    for name, text in (
        ("task.toml", '\ufeffversion = "1.0"\r\n[agent]\r\ntimeout_sec = 5\r\n'),
        ("instruction.md", "\ufeffDo it.\r\n"),
        ("environment/Dockerfile", "\ufeffFROM debian\r\nWORKDIR /app\r\n"),
    ):
        (folder / name).write_bytes(text.encode())
    task, problems = problems_of(folder, {"*": "host"})

    assert problems == []
    [step] = task.steps
    assert (step.agent_timeout_s, step.instruction, task.image) == (5.0, "Do it.\n", "debian")


def test_scripts_that_no_shell_runs_for_their_line_ends_are_named(a_task):
    folder = a_task()
    for name in ("tests/test.sh", "solution/solve.sh"):
        (folder / name).write_bytes(b"#!/bin/sh\r\ntrue\r\n")

    said = "its lines end as on Windows, so that no shell runs it. Write plain ends."
    assert told(folder) == [f"tests/test.sh:1: {said}", f"solution/solve.sh:1: {said}"]


def test_names_of_any_bytes_have_a_digest(a_task):
    folder = a_task()
    before = digest_of(folder)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).touch()

    assert digest_of(folder) != before


def test_images_that_cannot_be_read_are_named(a_task, tmp_path):
    folder = a_task()
    (tmp_path / "tasks" / "images.toml").write_text("debian = host\n")

    with pytest.raises(ConfigError, match=r"images\.toml is no TOML"):
        images_for(folder)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("COPY a.txt /a.txt", ["2: COPY to /a.txt: a sandbox shows no files at / itself"]),
        ("COPY . /", ["2: COPY to /: a sandbox shows no files at / itself"]),
        ("COPY a.txt /app", []),
        ("COPY a.txt /new/", []),
        ("COPY a.txt /new/a.txt", []),
        ("WORKDIR /new\nCOPY a.txt .", []),
    ],
)
def test_what_is_copied_to_where_no_sandbox_shows_it_is_named(a_task, line, said):
    files = {"environment/Dockerfile": f"FROM debian\n{line}\n", "environment/a.txt": "a"}
    found = told(a_task(toml="\n", **files))

    assert [one.partition("Dockerfile:")[2].partition(". Copy")[0] for one in found] == said


@needs_bwrap
def test_a_run_that_begins_with_a_bracket_is_a_test_of_the_shell(a_task):
    dockerfile = "FROM debian\nWORKDIR /app\nRUN [ -d /none ] || echo hello > greeting.txt\n"
    folder = a_task(toml="\n", environment__Dockerfile=dockerfile)
    found = CliRunner().invoke(app, ["oracle", str(folder), "--image", "*=host"])

    assert "doing nothing earns 1, as much as the solution" in found.output, found.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"reward": 1' + "0" * 400 + "}", "is inf, which is no finite number"),
        ("[" * 100_000, "is no JSON"),
        ('{"reward": NaN}', "is nan, which is no finite number"),
    ],
)
def test_numbers_that_no_reward_can_be_are_errors(tmp_path, text, said):
    (tmp_path / "logs/verifier").mkdir(parents=True)
    (tmp_path / "logs/verifier/reward.json").write_text(text)

    with pytest.raises(EnvError, match=said):
        read_rewards(tmp_path)


def test_a_folder_in_place_of_a_file_is_no_reward(tmp_path):
    (tmp_path / "logs/verifier/reward.json").mkdir(parents=True)

    with pytest.raises(EnvError, match=r"reward\.json is no file"):
        read_rewards(tmp_path)


@pytest.mark.parametrize(
    "fill",
    [
        "mkdir -p /logs/artifacts; i=0; while [ $i -lt 8 ]; do i=$((i+1)); "
        "truncate -s 15M /logs/artifacts/f$i; done",
        "head -c 9000000 /dev/zero > /logs/artifacts/f; ln /logs/artifacts/f /logs/artifacts/g",
    ],
    ids=["holes", "two names"],
)
@needs_bwrap
def test_artifacts_that_grow_when_they_are_copied_are_left_out(run_task, a_task, fill, caplog):
    toml = """
    [verifier]
    environment_mode = "separate"
    [environment]
    docker_image = "debian"
    workdir = "/app"
    storage_mb = 16
    """
    test = "#!/bin/sh\nls /logs/artifacts | wc -l > /logs/verifier/reward.txt\n"
    [experience], _ = run_task(a_task(test, toml=toml), fill, **RAW)

    assert experience.reward == 0.0
    assert "/logs/artifacts is left out" in caplog.text


USES_SHUT_FOLDERS = """
import os, sys
from pathlib import Path
from trinity_envs_harbor import safe_files

root = Path(sys.argv[1])
os.chown(root, 65534, 65534)
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
for path in ("logs/agent", "logs/verifier", "logs/artifacts/below"):
    (root / path).mkdir(parents=True)
(root / "logs/artifacts/below/file").write_text("kept")
for path in ("logs/artifacts/below/file", "logs/artifacts/below", "logs/artifacts", "logs/agent",
             "logs/verifier", "logs"):
    (root / path).chmod(0)
safe_files.written_inside(root, "/logs/agent/command.sh", "ls")
safe_files.empty_folder(root, "/logs/verifier")
safe_files.opened_up(root / "logs/artifacts")
safe_files.copied_inside(root / "logs/artifacts", root, "/copy")
copied = (root / "copy/below/file").read_text()
print(safe_files.read_inside(root, "/logs/agent/command.sh"), copied)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user that owns nothing")
def test_folders_that_an_agent_shut_are_used_all_the_same():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        done = subprocess.run(
            [sys.executable, "-c", USES_SHUT_FOLDERS, folder],
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.stdout == "b'ls' kept\n", done.stderr


def test_words_of_a_command_that_are_folders_are_those_of_the_sandbox(tmp_path):
    script = tmp_path / "agent.py"
    script.write_text("")
    words, shown = HarborSettings.of(
        {"command": ["sh", str(script), "/", ".", str(tmp_path)]}
    ).agent_command()

    assert words == ["sh", "/agent/1/agent.py", "/", ".", str(tmp_path)]
    assert shown == [(script, "/agent/1/agent.py")]


def test_a_home_in_a_command_is_of_this_machine_only_where_the_file_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "agent.py").write_text("")
    words, shown = HarborSettings.of(
        {"command": ["sh", "~/agent.py", "~/inside.sh"]}
    ).agent_command()

    assert words == ["sh", "/agent/1/agent.py", "~/inside.sh"]
    assert shown == [(tmp_path / "agent.py", "/agent/1/agent.py")]


def test_the_whole_machine_is_not_shown():
    with pytest.raises(ConfigError, match="every file of this machine"):
        HarborSettings.of({"command": ["sh"], "binds": ["/usr/.."]})


PREPARES = """
import sys
from pathlib import Path
from trinity_envs_harbor.prepared import prepared
from trinity_sandbox.choice import sandbox_named

prepared(Path(sys.argv[1]), sandbox=sandbox_named("bwrap"), images={"*": "host"})
print(*[one.name for one in Path(sys.argv[2]).iterdir()])
"""


@needs_bwrap
def test_prepared_files_do_not_outlive_their_process(a_task, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PREPARES, str(a_task()), str(made)],
        env={**os.environ, "TMPDIR": str(made)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("trinity-harbor-")
    assert list(made.iterdir()) == []
