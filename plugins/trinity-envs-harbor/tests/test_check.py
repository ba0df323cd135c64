"""Each thing that keeps a task from running is named, with its file and its line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.dockerfile import read_dockerfile
from trinity_envs_harbor.layout import images_for
from trinity_envs_harbor.prepared import problems_of
from trinity_envs_harbor.reading import read_task
from trinity_envs_harbor.task import digest_of
from typer.testing import CliRunner

from .conftest import needs_bwrap

EXAMPLES = Path(__file__).parents[3] / "examples" / "harbor" / "tasks"
IMAGES = {"*": "host"}
TWO_STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'


def told(folder: Path) -> list[str]:
    _, problems = problems_of(folder, IMAGES)
    return [str(one).removeprefix(f"{folder}/") for one in problems]


def invoked(*words: str):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gpus = 1", "task.toml:3: environment.gpus is not provided. Run this task with Harbor"),
        ('mcp_servers = [{name = "a"}]', "task.toml:3: environment.mcp_servers is not provided"),
        ('allowed_hosts = ["a.com"]', "task.toml:3: environment.allowed_hosts is not provided"),
        ('os = "windows"', "task.toml:3: environment.os is 'windows'. Sandboxes are of Linux"),
        ('network_mode = "allowlist"', "task.toml:3: a list of allowed hosts is not provided"),
        ("memory_mb = 0", "task.toml:3: environment.memory_mb is 0. Give a number above 0"),
        ('env = {KEY = "${TOKEN}"}', "environment.env.KEY takes '${TOKEN}' from this machine's"),
        ('workdir = "/usr/src/app"', "/usr/src/app lies below /usr, which is this machine's"),
    ],
)
def test_what_an_environment_asks_for_and_no_sandbox_has_is_named(a_task, line, said):
    folder = a_task(toml=f'[environment]\ndocker_image = "debian"\n{line}\n')

    assert [one for one in told(folder) if said in one], told(folder)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("steps = 3\n", "task.toml:1: steps is 3. Write a [[steps]] table for each"),
        ('[[steps]]\nname = "one"\n', "steps/one/instruction.md: it is missing: the prompt"),
        ('[[steps]]\nname = "a/b"\n', "task.toml:2: step 1: its name is 'a/b'. Name a folder"),
        (f"{TWO_STEPS}min_reward = 'x'\n", "task.toml:5: step 2: min_reward is 'x'. Give a number"),
        (f"{TWO_STEPS}[steps.healthcheck]\nx = 1\n", "task.toml:5: step 2: healthcheck is not pr"),
        (f"{TWO_STEPS}[steps.agent]\nuser = 'me'\n", "task.toml:6: step 2: agent.user and verif"),
        (f"{TWO_STEPS}[steps.agent]\nx = 1\n", "task.toml:6: note: step 2: agent.x is not known"),
        (f"multi_step_reward_strategy = 'best'\n{TWO_STEPS}", "task.toml:1: multi_step_reward_st"),
        ("[verifier]\nenvironment_mode = 'apart'\n", "task.toml:2: verifier.environment_mode: it"),
        ("[verifier.environment]\ncpus = 1\n", "task.toml:1: verifier.environment is not followed"),
        ('[agent]\nuser = "agent"\n', "task.toml:2: agent.user and verifier.user differ"),
        ("[agent]\ntimeout_sec = -1\n", "task.toml:2: agent.timeout_sec is -1. Give a number"),
        ('[solution.env]\nA = "$HOME"\n', "task.toml:2: solution.env.A takes '$HOME' from this"),
        ('artifacts = ["out"]\n', "task.toml:1: the artifact 'out' is not understood"),
        ("agent = 3\n", "task.toml:1: agent is 3, which is no table"),
        ("[agent\n", "task.toml:1: it is no TOML"),
        ("", "task.toml: there is no environment/Dockerfile and no environment.docker_image"),
    ],
)
def test_what_a_task_asks_for_and_nobody_gives_is_named(a_task, toml, said):
    folder = a_task(toml=toml or "\n")

    assert [one for one in told(folder) if one.startswith(said)], told(folder)


def test_a_network_that_is_not_given_and_a_key_that_nobody_knows_are_notes(a_task):
    toml = """\
[environment]
docker_image = "debian"
network_mode = "public"
privileged = true
"""
    folder = a_task(toml=toml)

    assert sorted(told(folder)) == [
        "task.toml:3: note: the task asks for the network, and a sandbox has none.",
        "task.toml:4: note: environment.privileged is not known, and has no effect.",
    ]


def test_files_that_are_missing_are_named(a_task):
    folder = a_task()
    (folder / "instruction.md").unlink()
    (folder / "tests" / "test.sh").unlink()

    assert told(folder) == [
        "instruction.md: it is missing: the prompt of the task.",
        "tests/test.sh: it is missing: the verifier of the task.",
    ]


@pytest.mark.parametrize("name", ["environment__docker-compose.yaml", "tests__Dockerfile"])
def test_services_and_an_image_of_the_verifier_are_refused(a_task, name):
    folder = a_task(**{name: "\n"})

    assert "Run this task with Harbor itself" in told(folder)[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("FROM debian\nRUN apt-get update && apt-get install -y git", "2: `apt-get update` needs"),
        ("FROM debian\nRUN set -e; \\\n  pip install pytest", "2: `pip install` needs the network"),
        ("FROM debian\nRUN cd /tmp && curl -O http://a", "2: `curl` needs the network"),
        ("FROM a AS b\nFROM debian", "2: a second FROM"),
        ("FROM debian\n# so\nEXPOSE 80", "3: EXPOSE is not followed"),
        ("FROM debian\nADD http://a /b", "2: ADD is not followed"),
        ("FROM debian\nCOPY --from=b /x /y", "2: COPY --from takes files of another image"),
        ("FROM debian\nRUN <<EOF", "2: a RUN with a here-document is not read"),
        ("FROM debian\nCOPY 'a b", "2: COPY cannot be read: No closing quotation"),
        ("FROM debian\nWORKDIR", "2: WORKDIR says nothing"),
        ("RUN true", "1: it does not begin with FROM"),
    ],
)
def test_instructions_that_are_not_followed_are_named_with_their_line(tmp_path, lines, said):
    file = tmp_path / "Dockerfile"
    file.write_text(lines)
    _, problems = read_dockerfile(file)

    assert str(problems[0]).startswith(f"{file}:{said}")


def test_a_script_whose_name_holds_a_program_needs_no_network(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM debian\nRUN ./curly.sh && echo pip install\nCMD bash\nLABEL a=b")

    assert read_dockerfile(file)[1] == []


def test_a_base_image_that_stands_for_nothing_is_refused_with_the_remedy(a_task, tmp_path):
    folder = a_task()
    _, problems = problems_of(folder, {})
    assert str(problems[0]).startswith(f"{folder}/task.toml:11: the base image 'debian' stands for")
    assert "--image debian=host" in str(problems[0])

    (tmp_path / "tasks" / "images.toml").write_text("debian = 'host'\n")
    assert images_for(folder) == {"debian": "host"}
    _, problems = problems_of(folder, {"debian": "./other"})
    assert "stands for './other'. It can stand for 'host' alone" in str(problems[0])


def test_older_spellings_and_defaults_are_read(a_task):
    toml = """\
version = "1.0"
[environment]
docker_image = "debian"
memory = "2G"
storage = "512M"
"""
    task, problems = read_task(a_task(toml=toml))

    assert problems == []
    assert (task.memory_mb, task.storage_mb, task.cpus) == (2048, 512, 1.0)
    [step] = task.steps
    assert (step.agent_timeout_s, step.verifier_timeout_s) == (600.0, 600.0)
    assert task.name == "task"


def test_a_digest_changes_with_a_text_a_name_and_a_mode(a_task):
    folder = a_task()
    digests = {digest_of(folder)}
    (folder / "tests" / "test.sh").chmod(0o755)
    digests.add(digest_of(folder))
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\n")
    digests.add(digest_of(folder))
    (folder / "tests" / "more").touch()
    digests.add(digest_of(folder))

    assert len(digests) == 4


def test_check_ends_with_code_1_where_a_task_cannot_run(a_task, tmp_path):
    a_task(name="good")
    a_task(name="bad", toml='[environment]\ndocker_image = "debian"\ngpus = 1\n')
    tasks = str(tmp_path / "tasks")

    found = invoked("check", tasks, "--image", "*=host")
    assert found.exit_code == 1
    assert "tasks/bad: cannot run\n" in found.output
    assert "tasks/good: runs in bwrap\n" in found.output
    assert "2 tasks, 1 of them cannot run" in found.output
    assert invoked("check", str(tmp_path / "tasks" / "good"), "--image", "*=host").exit_code == 0
    assert "holds no task" in invoked("check", str(tmp_path / "none")).output


def test_rows_name_each_task_and_its_digest(tmp_path):
    file = tmp_path / "rows.jsonl"
    found = invoked("rows", str(EXAMPLES), str(file))
    rows = [json.loads(line) for line in file.read_text().splitlines()]

    assert found.exit_code == 0
    assert [Path(row["task_dir"]).name for row in rows] == [
        *("count-lines", "first-name", "largest-number", "sort-words", "three-ticks"),
    ]
    assert rows[0]["name"] == "trinity/count-lines"
    assert rows[0]["digest"] == digest_of(EXAMPLES / "count-lines")


@needs_bwrap
def test_the_oracle_earns_1_at_each_task_of_the_examples_and_nothing_earns_0():
    found = invoked("oracle", str(EXAMPLES))

    assert found.exit_code == 0, found.output
    assert len(re.findall(r"^ +1 +0 +\d", found.output, re.MULTILINE)) == 5
    assert "5 tasks, 0 of them with a problem" in found.output


@needs_bwrap
@pytest.mark.parametrize(
    ("test", "solution", "said"),
    [
        ("echo 1 > /logs/verifier/reward.txt", "true", "doing nothing earns 1, as much as the"),
        ("echo 0 > /logs/verifier/reward.txt", "echo odd; false", "earns 0, less than 1. It print"),
        ("true", "true", "the solution: the verifier of task (code 0): the verifier wrote no rew"),
    ],
)
def test_the_oracle_names_a_task_that_does_not_tell_solved_from_not(a_task, test, solution, said):
    folder = a_task(f"#!/bin/sh\n{test}\n", solution__solve_sh="")
    (folder / "solution" / "solve.sh").write_text(f"#!/bin/sh\n{solution}\n")
    found = invoked("oracle", str(folder), "--image", "*=host")

    assert found.exit_code == 1
    assert said in found.output


@needs_bwrap
def test_a_build_follows_its_dockerfile(a_task):
    dockerfile = """\
    FROM debian:12
    ARG WORD=hel
    ENV NAME=greeting.txt SUFFIX=lo
    WORKDIR /job
    WORKDIR inner
    COPY words/ ./words
    COPY --chmod=755 words/run.sh more.txt /opt/bin/
    RUN ["sh", "-c", "cat words/a > joined"]
    RUN echo "$WORD$SUFFIX" >> joined \\
      && /opt/bin/run.sh
    """
    test = """\
    #!/bin/sh
    pwd > /tmp/said
    echo $NAME $WORD >> /tmp/said
    cat joined ran /opt/bin/more.txt >> /tmp/said
    printf '/job/inner\\ngreeting.txt\\na\\nhello\\nran\\nmore\\n' > /tmp/wanted
    if cmp /tmp/said /tmp/wanted; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
    cat /tmp/said
    """
    files = {
        "environment/Dockerfile": dockerfile,
        "environment/words/a": "a\n",
        "environment/words/run.sh": "#!/bin/sh\necho ran > ran\n",
        "environment/more.txt": "more\n",
    }
    folder = a_task(test, toml="\n", **files)
    found = invoked("oracle", str(folder), "--image", "*=host")

    assert "doing nothing earns 1, as much as the solution" in found.output, found.output


@needs_bwrap
def test_a_run_that_fails_says_where_and_what_it_printed(a_task):
    dockerfile = "FROM debian\nWORKDIR /app\nRUN echo odd && touch /usr/new\n"
    folder = a_task(toml="\n", environment__Dockerfile=dockerfile)
    found = invoked("oracle", str(folder), "--image", "*=host")

    assert f"{folder}/environment/Dockerfile:3: RUN failed (code 1)" in found.output
    assert "It printed: odd" in found.output
