"""Tasks of several steps: one environment, and each step is verified before the next begins."""

from __future__ import annotations

import json

import pytest
from trinity.errors import ConfigError, EnvError
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.prepared import problems_of
from trinity_envs_harbor.settings import HarborSettings
from typer.testing import CliRunner

from .conftest import needs_bwrap
from .test_bash import prompts

TOML = """
{strategy}
[verifier]
timeout_sec = 20
[verifier.env]
WORD = "hello"
[environment]
docker_image = "debian"
workdir = "/app"
memory_mb = 512
storage_mb = 16
network_mode = "none"
[[steps]]
name = "one"
min_reward = {least}
[[steps]]
name = "two"
[steps.agent]
timeout_sec = 30
[steps.verifier.env]
WORD = "world"
"""
HELPED = """\
#!/bin/sh
. /tests/word.sh
"""
WORD = """\
if [ "$(cat /app/greeting.txt)" = "$WORD" ]; then word=1; else word=0; fi
seen=$(cat /app/seen.txt || echo 0)
echo "{\\"reward\\": $word, \\"seen\\": $seen}" > /logs/verifier/reward.json
"""
SECRET = "/tests /solution /logs/verifier /logs/agent/old"
LOOKS = f"find {SECRET} -type f 2> /dev/null | wc -l > /app/seen.txt"
STEPS = {
    "tests__test.sh": "#!/bin/sh\nexit 9\n",  # of steps without one of their own
    "tests__word.sh": WORD,
    "steps__one__instruction.md": "Write hello.",
    "steps__one__tests__test.sh": HELPED,
    "steps__two__instruction.md": "Write world.",
    "steps__two__tests__test.sh": HELPED,
    "steps__two__workdir__setup.sh": "cat /app/greeting.txt > /app/old.txt\n",
    "solution__solve.sh": f"#!/bin/sh\n{LOOKS}\necho hello > /app/greeting.txt\n",
    "steps__two__solution__solve.sh": "#!/bin/sh\necho world > /app/greeting.txt\n",
}


def of_two_steps(a_task, *, strategy="", least="1.0", **files):
    return a_task(toml=TOML.format(strategy=strategy, least=least), **{**STEPS, **files})


def test_a_step_has_its_own_values_and_else_those_of_the_task(a_task):
    folder = of_two_steps(a_task)
    task, problems = problems_of(folder, {"*": "host"})

    assert problems == []
    one, two = task.steps
    assert [one.name, one.instruction, one.agent_timeout_s] == ["one", "Write hello.", 600.0]
    assert [two.agent_timeout_s, two.verifier_timeout_s] == [30.0, 20.0]
    assert (dict(one.verifier_env), dict(two.verifier_env)) == (
        {"WORD": "hello"},
        {"WORD": "world"},
    )
    assert (dict(one.min_reward), dict(two.min_reward)) == ({"reward": 1.0}, {})
    assert one.tests == (folder / "tests", folder / "steps/one/tests")
    assert (one.solution, two.solution) == (folder / "solution", folder / "steps/two/solution")
    assert (one.files, two.files) == (None, folder / "steps/two/workdir")


@needs_bwrap
@pytest.mark.parametrize(
    ("first", "second", "strategy", "rewards", "reward"),
    [
        ("hello", "world", "", [1, 1], 1.0),
        ("hello", "no", "", [1, 0], 0.5),
        ("hello", "no", 'multi_step_reward_strategy = "final"', [1, 0], 0.0),
        ("no", "world", "", [0], 0.0),  # below min_reward: the second step does not run
    ],
)
def test_steps_share_files_and_their_rewards_are_rolled_up(
    run_task, a_task, first, second, strategy, rewards, reward
):
    folder = of_two_steps(a_task, strategy=strategy)
    commands = [
        f"{LOOKS}; touch /logs/agent/old; echo {word} > greeting.txt" for word in (first, second)
    ]
    found, engine = run_task(folder, *commands, action="raw", max_env_steps=1)

    assert [one.reward for one in found] == [reward] * len(rewards)
    assert [one["reward"] for one in found[-1].info["harbor_steps"]] == rewards
    assert found[-1].metrics["agent/steps"] == len(rewards)
    assert found[-1].metrics["agent/replies"] == len(rewards)
    assert found[-1].metrics["verifier/seen"] == 0.0  # neither tests nor what they wrote
    assert "user\nWrite hello.<" in prompts(engine)[0]
    if len(rewards) == 2:
        assert "Write hello." not in prompts(engine)[1]


@needs_bwrap
def test_the_files_of_a_step_come_before_its_agent_and_its_setup_has_run(run_task, a_task):
    folder = of_two_steps(a_task)
    first = "[ -e old.txt ] || echo hello > greeting.txt"
    second = "cat old.txt setup.sh > greeting.txt"
    test = '[ "$(head -1 /app/greeting.txt)" = hello ] && echo 1 > /logs/verifier/reward.txt'
    (folder / "steps/two/tests/test.sh").write_text(f"#!/bin/sh\n{test}\n")
    found, _ = run_task(folder, first, second, action="raw", max_env_steps=1)

    assert [one["reward"] for one in found[-1].info["harbor_steps"]] == [1.0, 1.0]


@needs_bwrap
def test_one_conversation_goes_on_through_the_steps_where_it_is_asked_for(run_task, a_task):
    commands = [f"{LOOKS}; echo {word} > greeting.txt" for word in ("hello", "world")]
    folder = of_two_steps(a_task)
    [experience], engine = run_task(
        folder, *commands, action="raw", max_env_steps=1, resume_trajectory=True
    )

    assert experience.reward == 1.0
    assert (
        f"user\nWrite hello.<|im_end|>\n<|im_start|>assistant\n{commands[0]}" in prompts(engine)[1]
    )
    assert (
        prompts(engine)[1].rstrip().endswith("user\nWrite world.<|im_end|>\n<|im_start|>assistant")
    )


@needs_bwrap
def test_a_step_that_cannot_begin_is_an_error_and_not_a_reward(run_task, a_task):
    files = {"steps__two__workdir__setup.sh": "echo broken; exit 3\n"}
    with pytest.raises(EnvError, match=r"setup.sh of step two of task failed \(code 3\).*broken"):
        run_task(of_two_steps(a_task, least="0.0", **files), "true", action="raw", max_env_steps=1)


def test_only_the_built_in_agent_remembers_earlier_steps():
    with pytest.raises(ConfigError, match="resume_trajectory is for agent bash"):
        HarborSettings.of({"command": ["python3"], "resume_trajectory": True})


@needs_bwrap
def test_the_oracle_solves_each_step_and_rows_have_the_first_instruction(a_task, tmp_path):
    folder = of_two_steps(a_task)
    ended = CliRunner().invoke(app, ["oracle", str(folder), "--image", "debian=host"])
    assert "1 tasks, 0 of them with a problem" in ended.output, ended.output
    ended = CliRunner().invoke(
        app, ["rows", str(folder), str(tmp_path / "rows"), "--image", "debian=host"]
    )
    assert json.loads((tmp_path / "rows").read_text())["instruction"] == "Write hello.", (
        ended.output
    )
