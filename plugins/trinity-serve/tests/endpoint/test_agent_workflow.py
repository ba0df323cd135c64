"""An agent of somebody else, as a function or a command, made a run."""

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import openai
import pytest
from trinity.common.workflows.agent import AgentWorkflow
from trinity.errors import ConfigError, EnvError, ModelError, WorkflowError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine

COMMAND_AGENT = """
import json, os, sys, urllib.request

task = json.load(open(os.environ["TRINITY_TASK_FILE"]))
body = {"model": os.environ["TRINITY_MODEL"], "messages": [{"role": "user", "content": task["q"]}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
json.dump({"reward": float(said == task["a"]), "length": len(said)},
          open(os.environ["TRINITY_RESULT_FILE"], "w"))
"""


@pytest.fixture
def workflow_of(model_of):
    """Return what makes a workflow of an engine and workflow_args."""

    def build(engine, row=None, reward_fn=None, **arguments):
        task = a_task(raw_task=row or {"q": "2 + 2?", "a": "4"}, workflow_args=arguments, task_id=0)
        task.reward_fn, task.format_args.prompt_key, task.format_args.response_key = (
            reward_fn,
            "q",
            "a",
        )
        return AgentWorkflow(task=task, model=model_of(engine))

    return build


def say(client, text, model="scripted"):
    messages = [{"role": "user", "content": text}]
    reply = client.chat.completions.create(model=model, messages=messages)
    return reply.choices[0].message.content


def test_a_function_gets_what_it_names_and_its_calls_are_trained(workflow_of):
    def agent(task, client, logger):
        assert logger.name
        return {"reward": say(client, task["q"]) == task["a"], "turns": 1}

    [experience] = workflow_of("4", agent=agent).run()

    assert experience.reward == 1.0
    assert experience.response_text == "4"
    assert experience.metrics == {"turns": 1.0, "api/calls": 1.0}


def test_a_function_that_awaits_gets_the_async_client(workflow_of):
    async def agent(async_client):
        messages = [{"role": "user", "content": "hi"}]
        await async_client.chat.completions.create(model="scripted", messages=messages)
        return 0.5

    [experience] = workflow_of("hello", agent=agent).run()

    assert experience.reward == 0.5


def test_a_command_finds_task_and_model_in_its_environment(workflow_of, tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(COMMAND_AGENT)

    [experience] = workflow_of("4", command=["python", str(script)]).run()

    assert experience.reward == 1.0
    assert experience.metrics["length"] == 1.0


def test_without_a_reward_the_reward_function_reads_the_last_reply(workflow_of):
    def agent(client):
        say(client, "think")
        say(client, "answer")

    engine = ScriptedEngine("hm", "\\boxed{4}")
    first, last = workflow_of(engine, reward_fn="math_boxed_reward", agent=agent).run()

    assert first.reward == last.reward > 0


def test_rewards_by_agent_go_to_their_calls_and_are_compared_apart(workflow_of):
    def agent(client):
        say(client, "plan", model="scripted:planner")
        say(client, "solve", model="scripted:solver")
        say(client, "a title", model="scripted:titles")
        return {"planner": 1, "solver": 0}

    engine = ScriptedEngine("a", "b", "c")
    planner, solver = workflow_of(engine, agent=agent).run()

    assert (planner.reward, solver.reward) == (1.0, 0.0)
    assert (planner.eid.task, solver.eid.task) == ("0-planner", "0-solver")


def test_only_calls_with_tools_are_trained_where_it_says_so(workflow_of):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}

    def agent(client):
        say(client, "a title")
        messages = [{"role": "user", "content": "go"}]
        client.chat.completions.create(model="scripted", messages=messages, tools=[tool])
        return 1.0

    engine = ScriptedEngine("one", "two")
    [experience] = workflow_of(engine, agent=agent, train={"has_tools": True}).run()

    assert experience.response_text == "two"
    assert experience.metrics["api/calls"] == 2.0


def test_an_agent_that_asks_nothing_is_told_where_to_ask(workflow_of):
    with pytest.raises(WorkflowError, match="no call reached the endpoint: base_url http://127"):
        workflow_of("", agent=lambda: 1.0).run()


def test_an_agent_that_swallows_the_engines_failure_is_no_success(workflow_of):
    def agent(client):
        try:
            say(client.with_options(max_retries=0), "hi")
        except openai.OpenAIError:
            return 1.0

    with pytest.raises(ModelError, match="the last call of the agent got no reply"):
        workflow_of(ScriptedEngine("x", fails_at=0), agent=agent).run()


def test_no_reward_at_all_is_told(workflow_of):
    with pytest.raises(WorkflowError, match="the agent returned no reward"):
        workflow_of("x", agent=lambda client: say(client, "hi") and None).run()


@pytest.mark.parametrize("reward", ["high", float("nan"), {"reward": "5"}, {"a": None}])
def test_a_reward_that_is_no_number_is_told(workflow_of, reward):
    def agent(client):
        say(client, "hi")
        return reward

    with pytest.raises(WorkflowError, match="Return a finite number"):
        workflow_of("x", agent=agent).run()


def test_a_command_that_fails_is_told_with_what_it_printed(workflow_of):
    command = ["python", "-c", "print('out of luck'); raise SystemExit(3)"]

    with pytest.raises(WorkflowError, match=r"ended with code 3\. It printed: out of luck"):
        workflow_of("x", command=command).run()


def test_what_a_command_prints_is_in_the_log_where_it_succeeds(workflow_of, tmp_path, caplog):
    script = tmp_path / "agent.py"
    script.write_text(f"{COMMAND_AGENT}\nprint('used 3 tools', file=sys.stderr)\n")

    with caplog.at_level("INFO"):
        workflow_of("4", command=["python", str(script)]).run()

    assert "printed: used 3 tools" in caplog.text


def test_a_command_that_is_killed_is_no_fault_of_the_agent(workflow_of):
    command = ["python", "-c", "import os; os.kill(os.getpid(), 9)"]

    with pytest.raises(EnvError, match=r"was ended by signal 9 \(Killed\): by another process"):
        workflow_of("x", command=command).run()


def test_closing_ends_a_command_and_what_it_started(workflow_of, tmp_path):
    mark = tmp_path / "pid"
    code = (
        "import subprocess; p = subprocess.Popen(['sleep', '60']); "
        f"open({str(mark)!r}, 'w').write(str(p.pid)); p.wait()"
    )
    workflow = workflow_of("x", command=["python", "-c", code])
    failures = []

    def run():
        try:
            workflow.run()
        except EnvError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    pid = _number_in(mark)
    workflow.close()
    thread.join(10)

    assert len(failures) == 1
    _wait_until_gone(pid)


def test_a_home_in_a_command_is_that_of_the_user(workflow_of, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "agent.py").write_text("import sys; open(sys.argv[1], 'w').write('it ran')")
    with suppress(WorkflowError):  # it asked nothing
        workflow_of("x", command=["python", "~/agent.py", "~/said"]).run()

    assert (tmp_path / "said").read_text() == "it ran"


def test_a_killed_runner_leaves_no_command_behind(tmp_path):
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    runner = (
        "import os, sys\n"
        "from trinity_serve.agent_command import AgentCommand\n"
        f"command = AgentCommand(['python', '-c', {code!r}])\n"
        "command._run(dict(os.environ), open(os.devnull, 'w+b'))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", runner])
    pid = _number_in(mark)
    process.kill()
    process.wait()

    _wait_until_gone(pid)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "needs workflow_args.agent"),
        ({"agent": "no_such_module:f"}, "cannot be imported"),
        ({"agent": "json:nothing"}, "cannot be imported"),
        ({"agent": 5}, "Give a function"),
        ({"agent": lambda tusk: 1}, "Did you mean 'task'"),
        ({"command": "python x.py"}, "Give a list of words"),
        ({"command": ["no-such-program"]}, "there is no program"),
        ({"agnt": "x:y"}, "Did you mean 'agent'"),
        ({"agent": "json:loads", "train": {"agent": []}}, "Did you mean 'agents'"),
    ],
)
def test_arguments_that_no_run_could_use_are_told_before_it(arguments, told):
    with pytest.raises(ConfigError, match=told):
        AgentWorkflow.check_arguments(arguments)


def _number_in(file: Path) -> int:
    deadline = time.monotonic() + 20
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(file.read_text())


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while _is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
