"""Tasks in containers of docker or podman: built of their Dockerfile, with the users they name."""

from __future__ import annotations

from threading import Event

import pytest
from trinity.errors import BadTaskError, ConfigError, EnvError
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.container_workspace import ContainerWorkspace, PreparedImage
from trinity_envs_harbor.containers import ContainerClient, unpacked_file
from trinity_envs_harbor.layout import task_sandbox
from trinity_envs_harbor.prepared import prepared, problems_of
from trinity_envs_harbor.settings import HarborSettings
from trinity_sandbox.container import DEFAULT_IMAGE, ContainerSandbox
from typer.testing import CliRunner

from .conftest import call

MISSING = ContainerSandbox.problem()
needs_containers = pytest.mark.skipif(bool(MISSING), reason=f"no container runs here: {MISSING}")
DOCKERFILE = f"""\
FROM {DEFAULT_IMAGE} AS first
RUN echo hello > /made
FROM {DEFAULT_IMAGE}
COPY --from=first /made /app/made
RUN mkdir -p /app && chmod 777 /app && mkdir /kept && echo 1 > /kept/file
WORKDIR /app
"""
TOML = """
artifacts = ["/app/greeting.txt"]
[agent]
timeout_sec = 60
user = "nobody"
[verifier]
timeout_sec = 60
user = "root"
environment_mode = "{mode}"
[environment]
memory_mb = 128
"""
TEST = """\
#!/bin/sh
cat /app/greeting.txt
[ "$(cat /app/greeting.txt)" = hello ] && [ "$(id -u)" = 0 ] && [ ! -e /app/left ] && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""
NOBODY = "[ $(id -u) != 0 ] && [ ! -w /kept/file ] && [ ! -e /tests ] && cp made greeting.txt"
RUN = {"sandbox": "container"}


def in_image(a_task, *, mode="shared", test=TEST, **files):
    return a_task(test, toml=TOML.format(mode=mode), environment__Dockerfile=DOCKERFILE, **files)


def test_an_image_is_named_for_a_dockerfile_that_tasks_share_by_a_link(a_task, tmp_path):
    folder, beside = in_image(a_task), tmp_path / "tasks" / "shared"
    beside.mkdir()
    file = folder / "environment" / "Dockerfile"
    shared = file.rename(beside / "Dockerfile")
    file.symlink_to("../../shared/Dockerfile")
    task, _ = problems_of(folder, {}, tasks=folder.parent, in_container=True)
    client = ContainerClient(program="true", is_podman=True)  # has each image

    before = client.image_of(task, folder.parent)
    shared.write_text(DOCKERFILE + "RUN true\n")

    assert client.image_of(task, folder.parent) != before


def test_a_container_takes_what_bwrap_refuses_and_the_rest_is_refused_all_the_same(a_task):
    folder = in_image(a_task)
    task, problems = problems_of(folder, {}, in_container=True)

    assert problems == []
    assert (task.steps[0].agent_user, task.steps[0].verifier_user) == ("nobody", "root")
    _, problems = problems_of(folder, {"*": "host"})
    assert [str(one).partition(": ")[2][:40] for one in problems if not one.is_note] == [
        "agent.user and verifier.user differ. bwr",
        "a second FROM: a build of several stages",
        "COPY --from takes files of another image",
    ]
    assert ["use sandbox: container" in str(one) for one in problems[:3]] == [True] * 3
    (folder / "environment/docker-compose.yaml").touch()
    _, [problem] = problems_of(folder, {}, in_container=True)
    assert "services beside the task. Run this task with Harbor itself" in str(problem)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"command": ["python"], **RUN}, "a command needs this Python, which an image has not"),
        ({"allow_network": True}, "allow_network is for sandbox: container; bwrap has no network"),
    ],
)
def test_what_a_container_or_bwrap_cannot_do_is_refused(arguments, told):
    with pytest.raises(ConfigError, match=told):
        HarborSettings.of(arguments)


def test_a_machine_without_a_client_that_answers_is_told_so(monkeypatch, tmp_path):
    from trinity_sandbox import container

    monkeypatch.setenv("PATH", str(tmp_path))
    container.container_client.cache_clear()
    with pytest.raises(ConfigError, match=r"podman is not installed\. Start docker or podman"):
        task_sandbox("container")
    container.container_client.cache_clear()


@needs_containers
@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_the_agent_is_the_user_of_the_task_and_so_is_the_verifier(run_task, a_task, mode):
    folder = in_image(a_task, mode=mode)
    commands = (call(NOBODY), call("touch left" if mode == "separate" else "pwd"), "done")
    [experience], engine = run_task(folder, *commands, **RUN)

    assert experience.reward == 1.0, experience
    if mode == "shared":
        prompt = engine.tokenizer.decode(engine.exchanges[2].request.prompt_token_ids)
        assert "tool\n/app<" in prompt


@needs_containers
@pytest.mark.parametrize("path", ["/app/greeting.txt", "/app/out/greeting.txt"])
def test_a_link_to_the_tests_is_not_handed_over(run_task, a_task, path):
    test = f"""\
    #!/bin/sh
    cmp {path} /tests/test.sh && r=1 || r=0
    echo $r > /logs/verifier/reward.txt
    """
    toml = TOML.format(mode="separate").replace('"]', '", "/app/out"]', 1)
    folder = a_task(test, toml=toml, environment__Dockerfile=DOCKERFILE)
    command = f"mkdir /app/out; ln -s /tests/test.sh {path}"
    [experience], _ = run_task(folder, command, action="raw", max_env_steps=1, **RUN)

    assert experience.reward == 0.0


@needs_containers
def test_nothing_of_the_agent_runs_while_the_tests_do(run_task, a_task):
    test = """\
    #!/bin/sh
    sleep 2
    ls /app/late && late=1 || late=0
    echo $late > /logs/verifier/reward.txt
    """
    late = "nohup sh -c 'sleep 2; touch /app/late' > /dev/null 2>&1 &"
    command = f"{late} echo 9 > /logs/verifier/reward.txt"
    [experience], _ = run_task(
        in_image(a_task, test=test), command, action="raw", max_env_steps=1, **RUN
    )

    assert experience.reward == 0.0


@needs_containers
@pytest.mark.parametrize(
    ("test", "toml", "said"),
    [
        ("#!/bin/sh\necho broke; exit 2\n", "", "(code 2): the verifier wrote no reward"),
        ("#!/bin/sh\nsleep 600\n", "timeout_sec = 2", "did not end in 2 s. Raise verifier"),
        (
            "#!/bin/sh\nmkdir /logs/verifier/reward.txt\n",
            "",
            "/logs/verifier/reward.txt is no file",
        ),
    ],
)
def test_a_verifier_without_a_reward_is_an_error(run_task, a_task, test, toml, said):
    toml = f"[environment]\ndocker_image = '{DEFAULT_IMAGE}'\n[verifier]\n{toml}\n"
    with pytest.raises(EnvError) as raised:
        run_task(a_task(test, toml=toml), "true", action="raw", max_env_steps=1, **RUN)
    assert said in str(raised.value)


@needs_containers
def test_an_agent_is_ended_by_its_time_or_memory_and_verified(run_task, a_task):
    toml = TOML.format(mode="shared").replace(
        'timeout_sec = 60\nuser = "nobody"', "timeout_sec = 4"
    )
    hello = "echo hello > /app/greeting.txt"
    fills = "python3 -c \"x = b'x' * (1 << 30)\""
    files = {"environment__Dockerfile": DOCKERFILE}
    folder = a_task(TEST, toml=toml, **files)
    [experience], engine = run_task(folder, fills, f"{hello}; sleep 60", action="raw", **RUN)

    assert (experience.reward, experience.metrics["agent/late"]) == (1.0, 1.0)
    assert "[ended by its limit of memory]" in engine.tokenizer.decode(
        engine.exchanges[1].request.prompt_token_ids
    )


@needs_containers
def test_no_network_is_there_and_a_build_that_fails_says_why(run_task, a_task):
    test = """\
    #!/bin/sh
    ls /sys/class/net | grep -v lo | wc -l > /logs/verifier/reward.txt
    """
    [experience], _ = run_task(
        in_image(a_task, test=test), "true", action="raw", max_env_steps=1, **RUN
    )
    assert experience.reward == 0.0

    folder = a_task(
        name="broken", environment__Dockerfile=f"FROM {DEFAULT_IMAGE}\nRUN echo no; false\n"
    )
    with pytest.raises(EnvError, match="build failed"):
        prepared(folder, sandbox=ContainerClient.found(), images={})
    (folder / "environment/docker-compose.yml").touch()
    with pytest.raises(BadTaskError, match="services beside the task"):
        prepared(folder, sandbox=ContainerClient.found(), images={})


@needs_containers
def test_steps_and_the_oracle_run_in_a_container(a_task):
    toml = f"{TOML.format(mode='shared')}[[steps]]\nname='one'\n[[steps]]\nname='two'\n"
    steps = {f"steps__{name}__instruction.md": name for name in ("one", "two")}
    steps["steps__two__workdir__setup.sh"] = (
        "rm -f /app/greeting.txt; [ ! -e /tests/test.sh ] || exit 3\n"
    )
    files = {"environment__Dockerfile": DOCKERFILE, **steps}
    folder = a_task(TEST, toml=toml, **files)
    ended = CliRunner().invoke(app, ["oracle", str(folder), "--sandbox", "container"])

    assert "1 tasks, 0 of them with a problem" in ended.output, ended.output


@needs_containers
def test_no_container_is_left(run_task, a_task):
    client = ContainerClient.found()
    run_task(in_image(a_task), "true", action="raw", max_env_steps=1, **RUN)

    assert client.call("ps", "--all", "--quiet", "--filter", "name=trinity-harbor-") == b""


def test_what_is_no_file_in_a_tar_is_not_read(tmp_path):
    import io
    import tarfile

    for kind, told in ((tarfile.SYMTYPE, "is no file"), (tarfile.REGTYPE, "has 2097152 bytes")):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            info = tarfile.TarInfo("reward.txt")
            info.type, info.linkname = kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            info.size = 2 << 20 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(bytes(info.size)))
        with pytest.raises(EnvError, match=told):
            unpacked_file(packed.getvalue(), "/logs/verifier/reward.txt")


def test_artifacts_that_are_too_large_for_the_memory_are_left_out(
    tmp_path, a_task, monkeypatch, caplog
):
    monkeypatch.setattr("trinity_envs_harbor.container_workspace._MOST_ARTIFACTS_MB", 1)
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\necho $@ >> $0.log\nexec head -c 3000000 /dev/zero\n")
    client.chmod(0o755)
    task, _ = problems_of(in_image(a_task), {}, in_container=True)
    image = PreparedImage(
        task=task,
        digest="",
        image=DEFAULT_IMAGE,
        client=ContainerClient(program=str(client), is_podman=True),
    )
    one, other = (ContainerWorkspace(image, name, tmp_path, Event()) for name in ("one", "other"))

    one.hand_over(["/logs/artifacts", "/app/greeting.txt"], other)

    assert (tmp_path / "client.log").read_text() == "cp one:/logs/artifacts -\n"
    assert "/logs/artifacts is left out, as the artifacts are larger than 1 MB" in caplog.text
