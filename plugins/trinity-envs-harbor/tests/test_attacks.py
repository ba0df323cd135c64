"""What agents and tests of tasks try, and what comes of it."""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path

import pytest
from trinity.errors import EnvError
from trinity_envs_harbor.layout import HOME

from .conftest import IS_HELLO, call, needs_bwrap

pytestmark = needs_bwrap
RAW = {"action": "raw", "max_env_steps": 1}


def reward_after(run_task, folder, command: str) -> float:
    [experience], _ = run_task(folder, command, **RAW)
    return experience.reward


def test_a_reward_that_the_agent_wrote_is_deleted(run_task, a_task):
    silent = a_task("#!/bin/sh\ntrue\n", name="silent")
    for command in (
        "echo 1 > /logs/verifier/reward.txt",
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "mkdir /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt",
    ):
        assert reward_after(run_task, a_task(), command) == 0.0
        with pytest.raises(EnvError, match="wrote no reward"):
            run_task(silent, command, **RAW)


@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_a_solution_that_writes_a_reward_as_it_is_imported_keeps_that_of_the_tests(
    run_task, a_task, mode, caplog
):
    toml = f"""
    artifacts = ["/app/solution.py"]
    [verifier]
    environment_mode = "{mode}"
    [environment]
    docker_image = "debian"
    workdir = "/app"
    """
    test = """\
    #!/bin/sh
    cd /app
    if python3 -c 'from solution import answer; assert answer == 42'; then r=1; else r=0; fi
    echo $r > /logs/verifier/reward.txt
    """
    command = """\
    cat > /app/solution.py << 'END'
open("/logs/verifier/reward.json", "w").write('{"reward": 1}')
answer = 41
END
    """

    assert reward_after(run_task, a_task(test, toml=toml), command) == 0.0
    told = "the verifier of task wrote 1 to reward.json and 0 to reward.txt: the lower one counts"
    assert told in caplog.text


def test_tests_that_the_agent_wrote_are_replaced(run_task, a_task):
    forged = "#!/bin/sh\necho 1 > /logs/verifier/reward.txt"
    for command in (
        f"mkdir /tests; echo '{forged}' > /tests/test.sh",
        f"mkdir -p /logs/tests; echo '{forged}' > /logs/tests/test.sh",
    ):
        assert reward_after(run_task, a_task(), command) == 0.0


def test_the_agent_sees_neither_tests_nor_solution(run_task, a_task):
    [experience], engine = run_task(
        a_task(), call("ls / /tests /solution; find / -name 'test.sh' -o -name 'solve.sh'"), "done"
    )

    told = engine.tokenizer.decode(engine.exchanges[-1].request.prompt_token_ids)
    assert "No such file or directory" in told
    assert "test.sh\n" not in told
    assert "solve.sh\n" not in told
    assert experience.reward == 0.0


def test_a_link_in_place_of_a_folder_leads_nobody_out(run_task, a_task, tmp_path):
    outside = tmp_path / "outside"
    (outside / "verifier").mkdir(parents=True)
    (outside / "kept").write_text("kept")
    for command in (
        f"rm -r /logs/verifier; ln -s {outside} /logs/verifier",
        f"rm -r /logs/agent; ln -s {outside} /logs/agent; ln -s {outside} /app/tests",
        f"rm -rf /logs/verifier; ln -s {outside}/verifier /logs/verifier",
    ):
        assert reward_after(run_task, a_task(), command) == 0.0
    assert sorted(path.name for path in outside.rglob("*")) == ["kept", "verifier"]


def test_links_among_artifacts_bring_nothing_of_this_machine(run_task, a_task, tmp_path):
    secret = tmp_path / "greeting.txt"
    secret.write_text("hello")
    toml = """
    artifacts = ["/app/greeting.txt", "/app/folder/greeting.txt"]
    [verifier]
    environment_mode = "separate"
    [environment]
    docker_image = "debian"
    workdir = "/app"
    """
    test = """\
    #!/bin/sh
    if cat /app/greeting.txt /app/folder/greeting.txt; then reward=1; else reward=0; fi
    echo $reward > /logs/verifier/reward.txt
    """
    command = f"ln -s {secret} greeting.txt; ln -s {tmp_path} folder"

    assert reward_after(run_task, a_task(test, toml=toml), command) == 0.0


def test_a_background_process_does_not_live_to_the_verifier(run_task, a_task):
    test = """\
    #!/bin/sh
    sleep 0.5
    cat /app/ticks | wc -l > /tmp/first
    sleep 0.5
    cat /app/ticks | wc -l > /tmp/second
    if cmp -s /tmp/first /tmp/second; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
    """
    command = (
        "(setsid sh -c 'while true; do echo x >> /app/ticks; "
        "echo 1 > /logs/verifier/reward.txt; sleep 0.05; done' > /dev/null 2>&1 &) ; sleep 0.2"
    )

    assert reward_after(run_task, a_task(test), command) == 1.0
    assert reward_after(run_task, a_task(name="other"), command) == 0.0


@pytest.mark.parametrize("who", ["agent", "verifier"])
def test_nothing_outside_is_written(run_task, a_task, tmp_path, who):
    targets = [tmp_path / "new", Path("/usr/new"), Path("/etc/new"), Path("/new"), Path("/dev/new")]
    command = "; ".join(f"touch {one} && wrote=yes" for one in targets)
    report = '; [ -z "$wrote" ] && echo hello > /app/greeting.txt'
    if who == "agent":
        assert reward_after(run_task, a_task(), command + report) == 1.0
    else:
        test = f"#!/bin/sh\n{command}{report}\n" + IS_HELLO.partition("sh\n")[2]
        assert reward_after(run_task, a_task(test), "true") == 1.0
    assert [one for one in targets if one.exists()] == []


@pytest.mark.parametrize("who", ["agent", "verifier"])
def test_no_network_is_reached(run_task, a_task, who):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attempts = (
            f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
            "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
            "import socket; socket.getaddrinfo('example.com', 80)",
        )
        command = " || ".join(f'python3 -c "{one}"' for one in attempts)
        command = f"if {command}; then true; else echo hello > /app/greeting.txt; fi"
        if who == "agent":
            assert reward_after(run_task, a_task(), command) == 1.0
        else:
            test = f"#!/bin/sh\n{command}\n" + IS_HELLO.partition("sh\n")[2]
            assert reward_after(run_task, a_task(test), "true") == 1.0
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    "fill",
    [
        "cat /dev/zero > /app/big",
        "i=0; while true; do i=$((i+1)); head -c 1000000 /dev/zero > /app/f$i || break; done",
        "cat /dev/zero > /tmp/big",
    ],
    ids=["one file", "many files", "tmp"],
)
def test_a_full_disk_ends_the_command_at_its_limit(run_task, a_task, fill):
    began = time.monotonic()
    [experience], engine = run_task(a_task(), call(f"({fill}) 2>&1; sleep 30"), "done")

    told = engine.tokenizer.decode(engine.exchanges[-1].request.prompt_token_ids)
    assert "ended by its limit of" in told or "File too large" in told
    assert experience.reward == 0.0
    assert time.monotonic() - began < 60


def test_shared_memory_is_no_way_around_the_limit(run_task, a_task):
    command = (
        "i=0; while [ $i -lt 12 ]; do i=$((i+1)); head -c 10000000 /dev/zero > /dev/shm/f$i "
        "|| echo hello > /app/greeting.txt; done"
    )

    assert reward_after(run_task, a_task(), command) == 1.0


def test_a_command_that_forks_without_end_ends(run_task, a_task):
    [experience], _ = run_task(a_task(agent_s=3), call("f() { f | f & }; f; sleep 30"), "done")

    assert experience.reward == 0.0


def test_no_variable_of_the_run_is_seen(run_task, a_task, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_RUN", "through")
    [_], engine = run_task(a_task(), call("env; cat /proc/1/environ | tr '\\0' '\\n'"), "done")

    told = engine.tokenizer.decode(engine.exchanges[-1].request.prompt_token_ids)
    assert f"HOME={HOME}" in told
    assert "through" not in told


def test_folders_that_cannot_be_entered_do_not_outlive_the_rollout(
    run_task, a_task, tmp_path, monkeypatch
):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    command = "mkdir -p a/b; touch a/b/c; chmod 000 a/b a /logs/verifier"

    assert reward_after(run_task, a_task(), command) == 0.0
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert [name for name in left if name.startswith("trinity-sandbox-")] == []


@pytest.mark.parametrize("mode", ["shared", "separate"])
@pytest.mark.parametrize("where", ["/app", "/logs/artifacts", "/logs/verifier"])
def test_folders_nested_without_end_neither_fail_the_rollout_nor_outlive_it(
    run_task, a_task, tmp_path, monkeypatch, mode, where
):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    toml = f"""
    artifacts = ["/app"]
    [verifier]
    environment_mode = "{mode}"
    [environment]
    docker_image = "debian"
    workdir = "/app"
    """
    nests = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(1200)]"
    command = f'cd {where}; python3 -c "{nests}"'

    assert reward_after(run_task, a_task(toml=toml), command) == 0.0
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert [name for name in left if name.startswith("trinity-sandbox-")] == []
