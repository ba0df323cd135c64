"""An agent of somebody else inside the sandbox reaches the model, and nothing else."""

from __future__ import annotations

import socket
import textwrap
import threading
import time

import pytest
from trinity.errors import ConfigError, EnvError, WorkflowError

from .conftest import TOML, needs_bwrap

pytestmark = needs_bwrap

OPENAI_AGENT = """
import os, subprocess
import openai

client = openai.OpenAI()
messages = [{"role": "user", "content": open(os.environ["TRINITY_INSTRUCTION_FILE"]).read()}]
for _ in range(3):
    reply = client.chat.completions.create(model=os.environ["TRINITY_MODEL"], messages=messages)
    command = reply.choices[0].message.content
    messages.append({"role": "assistant", "content": command})
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    messages.append({"role": "user", "content": f"code {done.returncode}"})
    if command == "exit":
        break
"""
PLAIN_AGENT = """
import json, os, urllib.request

def ask(text):
    body = {"model": os.environ["TRINITY_MODEL"], "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    answer = json.load(urllib.request.urlopen(request, timeout=20))
    return answer["choices"][0]["message"]["content"]
"""
FILLS_THE_DISK = """
while True:
    open("/app/f%d" % len(os.listdir("/app")), "wb").write(bytes(10**6))
"""


@pytest.fixture
def agent(tmp_path):
    """Return what writes an agent; its command."""

    def write(source: str, *, plain: bool = True) -> list[str]:
        file = tmp_path / "agents" / "agent.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text((PLAIN_AGENT if plain else "") + textwrap.dedent(source))
        return ["python", str(file)]

    return write


def test_an_openai_client_inside_asks_the_model_and_each_call_is_an_experience(
    run_task, a_task, agent
):
    command = agent(OPENAI_AGENT, plain=False)
    experiences, engine = run_task(
        a_task(), "echo hello > /app/greeting.txt", "exit", command=command
    )

    assert [one.reward for one in experiences] == [1.0, 1.0]
    assert experiences[0].response_text == "echo hello > /app/greeting.txt"
    assert experiences[-1].metrics["agent/calls"] == 2.0
    prompt = engine.tokenizer.decode(engine.exchanges[1].request.prompt_token_ids)
    assert "Write hello into greeting.txt." in prompt
    assert "code 0" in prompt


def test_a_command_is_given_the_instruction_as_a_word(run_task, a_task, agent):
    source = """
    import sys
    ask("hi")
    open("/app/greeting.txt", "w").write("hello" * (sys.argv[1].startswith("Write hello")))
    """
    [experience], _ = run_task(a_task(), "hi", command=[*agent(source), "{instruction}"])

    assert experience.reward == 1.0


def test_a_command_begins_anew_in_each_step_and_is_told_its_instruction(run_task, a_task, agent):
    source = """
    row = json.load(open(os.environ["TRINITY_TASK_FILE"]))
    open("/app/greeting.txt", "a").write(ask(row["step"] + ": " + row["instruction"]))
    """
    steps = {f"steps__{name}__instruction.md": name.upper() for name in ("one", "two")}
    test = "#!/bin/sh\nwc -c < /app/greeting.txt > /logs/verifier/reward.txt\n"
    toml = f"{TOML.format(agent_s=20, verifier_s=20)}[[steps]]\nname='one'\n[[steps]]\nname='two'\n"
    experiences, engine = run_task(
        a_task(test, toml=toml, **steps), "abcd", "ef", command=agent(source)
    )

    assert [one.reward for one in experiences] == [5.0, 5.0]  # the mean of 4 and 6
    assert experiences[-1].metrics["agent/calls"] == 2.0
    prompts = [engine.tokenizer.decode(one.request.prompt_token_ids) for one in engine.exchanges]
    assert ["one: ONE" in prompts[0], "two: TWO" in prompts[1]] == [True, True]


def test_nothing_but_the_model_is_reached(run_task, a_task, agent):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"""
        import socket
        ask("hi")
        found = []
        for host, port in (("127.0.0.1", {port}), ("1.1.1.1", 53), ("127.0.0.1", 22)):
            try:
                socket.create_connection((host, port), 2)
                found.append(port)
            except OSError:
                pass
        open("/app/greeting.txt", "w").write("hello" if not found else str(found))
        """
        [experience], _ = run_task(a_task(), "hi", command=agent(source))
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()

    assert experience.reward == 1.0


def test_many_requests_at_once_are_answered_and_so_is_the_next(run_task, a_task, agent):
    source = """
    from http.client import HTTPConnection
    url = os.environ["OPENAI_BASE_URL"]
    host, _, path = url.removeprefix("http://").partition("/")
    body = {"model": os.environ["TRINITY_MODEL"], "messages": [{"role": "user", "content": "hi"}]}
    headers = {
        "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
        "Content-Type": "application/json",
    }
    open_ones = [HTTPConnection(host, timeout=20) for _ in range(NUM)]
    for one in open_ones:
        one.request("POST", f"/{path}/chat/completions", json.dumps(body), headers)
    answered = 0
    for one in open_ones:
        answered += one.getresponse().status == 200
        one.close()
    ask("again")
    open("/app/greeting.txt", "w").write("hello" if answered == NUM else str(answered))
    """.replace("NUM", "100")
    answers = ["hi"] * 101
    experiences, _ = run_task(a_task(), *answers, command=agent(source))

    assert experiences[0].reward == 1.0
    assert experiences[-1].metrics["agent/calls"] == 101.0


def test_a_key_of_another_run_opens_nothing(run_task, a_task, agent):
    source = """
    import urllib.error
    ask("hi")
    os.environ["OPENAI_API_KEY"] = "trk-" + "a" * 32
    try:
        ask("again")
    except urllib.error.HTTPError as error:
        open("/app/greeting.txt", "w").write("hello" if error.code == 401 else str(error.code))
    """
    [experience], _ = run_task(a_task(), "hi", command=agent(source))

    assert experience.reward == 1.0


def test_the_verifier_reaches_not_even_the_model(run_task, a_task, agent):
    test = """\
    #!/bin/sh
    if [ -e /agent ] || [ -n "$OPENAI_BASE_URL" ]; then echo 0; else echo 1; fi \
      > /logs/verifier/reward.txt
    """
    [experience], _ = run_task(a_task(test), "hi", command=agent('ask("hi")'))

    assert experience.reward == 1.0


def test_an_agent_that_leaves_a_process_which_asks_on_is_over_with_its_command(
    run_task, a_task, agent
):
    source = """
    import time
    ask("hi")
    if os.fork() == 0:
        os.setsid()
        time.sleep(1)
        ask("late")
    """
    experiences, engine = run_task(
        a_task("#!/bin/sh\nsleep 2; echo 1 > /logs/verifier/reward.txt\n"),
        *("hi", "late"),
        command=agent(source),
    )

    assert len(experiences) == 1
    assert len(engine.exchanges) == 1


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys; sys.exit('it broke')", "was ended by code 1. It printed: it broke"),
        ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by"),
        (FILLS_THE_DISK, "was ended by its limit of disk"),
    ],
    ids=["fails", "crashes", "fills the disk"],
)
def test_the_work_of_an_agent_that_fails_is_verified_and_the_failure_named(
    run_task, a_task, agent, source, said, caplog
):
    source = f'ask("hi")\nopen("/app/greeting.txt", "w").write("hello")\n{source}'
    [experience], _ = run_task(a_task(), "hi", command=agent(source))

    assert experience.reward == 1.0
    assert experience.metrics["agent/failed"] == 1.0
    assert said in experience.info["agent_failure"]
    assert said in caplog.text


def test_an_agent_that_asks_nothing_is_an_error_with_what_it_printed(run_task, a_task, agent):
    with pytest.raises(WorkflowError, match=r"reached the model.*it broke"):
        run_task(a_task(), "hi", command=agent("import sys; sys.exit('it broke')"))


def test_an_agent_out_of_time_is_verified(run_task, a_task, agent):
    source = """
    import time
    ask("hi")
    open("/app/greeting.txt", "w").write("hello")
    time.sleep(60)
    """
    [experience], _ = run_task(a_task(agent_s=3), "hi", command=agent(source))

    assert experience.reward == 1.0
    assert experience.metrics["agent/late"] == 1.0


def test_a_run_that_is_closed_ends_its_agent(workflow_of, a_task, agent):
    workflow, engine = workflow_of(
        a_task(agent_s=120), "hi", command=agent("import time; ask('hi'); time.sleep(100)")
    )
    began = time.monotonic()
    waiting = threading.Thread(target=_close_when_asked, args=(workflow, engine))
    waiting.start()
    with pytest.raises(EnvError, match="stopped"):
        workflow.run()
    waiting.join(10)

    assert time.monotonic() - began < 60


def _close_when_asked(workflow, engine) -> None:
    end = time.monotonic() + 40
    while not engine.exchanges and time.monotonic() < end:
        time.sleep(0.05)
    workflow.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"agent": "bsh"}, "no workflow_args.agent 'bsh'|'bsh'"),
        ({"agent": "command"}, "A command, such as"),
        ({"agent": "bash", "command": ["true"]}, "is for agent command"),
        ({"command": "python agent.py"}, "Give a list of words"),
        ({"comand": ["true"]}, "Did you mean 'command'"),
        ({"binds": ["/not/there"]}, "/not/there is not there"),
        ({"action": "tool"}, "Did you mean 'tools'"),
        ({"max_env_steps": 0}, "workflow_args.max_env_steps"),
        ({"images": ["host"]}, "Give pairs"),
        ({"sandbox": "limits"}, "sandbox limits cannot show files at paths such as /app"),
    ],
)
def test_arguments_that_no_run_could_use_are_refused(arguments, said):
    from trinity_envs_harbor.workflow import HarborWorkflow

    with pytest.raises(ConfigError, match=said):
        HarborWorkflow.check_arguments(arguments)
