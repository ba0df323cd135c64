"""The tutorial's agent is the example's, and a run of it trains on both of its calls."""

from __future__ import annotations

import json
import runpy
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from trinity.cli.main import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "agents"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["prepare.py"])
        runpy.run_path(str(EXAMPLE / "prepare.py"), run_name="__main__")
    return folder


@pytest.fixture
def trinity(prepared, monkeypatch):
    """Return the command line, called where the example's files are."""
    monkeypatch.chdir(prepared)
    monkeypatch.syspath_prepend(ROOT)
    return lambda *words: CliRunner().invoke(app, [*map(str, words)])


def test_the_tutorial_shows_the_agent_as_it_is():
    page = (ROOT / "docs/tutorial/train-your-agent.md").read_text(encoding="utf-8")

    assert (EXAMPLE / "calculator.py").read_text(encoding="utf-8") in page


def test_the_configuration_of_the_tutorial_has_nothing_wrong(trinity):
    ended = trinity("config", "check", EXAMPLE / "tiny.yaml")

    assert ended.exit_code == 0, ended.output


def test_a_demonstration_calls_a_tool_and_says_its_result(prepared):
    rows = [json.loads(line) for line in (prepared / "agents_run/sft.jsonl").open()]
    tools = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}

    for row in rows[:100]:
        _, call, result, answer = row["messages"]
        function = call["tool_calls"][0]["function"]
        said = str(tools[function["name"]](**function["arguments"]))
        assert said == result["content"] == answer["content"]


def test_the_tokenizer_knows_all_of_a_conversation_and_a_call_is_read_back(prepared):
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.models.reply import reply_parser
    from trinity.common.models.settings import ModelSettings

    form = ChatFormat.load(str(prepared / "agents_run/model"))
    rows = [json.loads(line) for line in (prepared / "agents_run/sft.jsonl").open()]
    texts = [form.render(row["messages"], add_generation_prompt=False) for row in rows[:50]]
    unknown = form.tokenizer.unk_token_id
    call = "<tool_call>" + form.decode(
        form.encode('{"name": "add", "arguments": {"a": 3, "b": 14}}</tool_call>')
    )

    parsed = reply_parser(form, ModelSettings()).parse(call, prompt="", tools=[{"name": "add"}])

    assert not any(unknown in form.encode(text) for text in texts)
    [found] = parsed.tool_calls
    assert (found.name, found.arguments) == ("add", {"a": 3, "b": 14})


@pytest.mark.acceptance
def test_a_short_run_of_the_tutorial_trains_on_the_calls_of_the_agent(trinity, tmp_path):
    config = yaml.safe_load((EXAMPLE / "tiny.yaml").read_text(encoding="utf-8"))
    config["stages"][0]["buffer"] |= {"total_steps": 30}
    del config["stages"][0]["buffer"]["total_epochs"]
    config["stages"][0]["algorithm"]["optimizer"]["lr"] = 3e-3
    config["buffer"] |= {"batch_size": 2, "total_steps": 2}
    config["buffer"]["explorer_input"]["eval_tasksets"] = []
    config["checkpoint_root_dir"] = str(tmp_path)
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))

    ended = trinity("run", "--local", "--config", path)

    assert ended.exit_code == 0, ended.output
    file = tmp_path / "agents/tiny/agent/monitor/metrics.jsonl"
    rows = [json.loads(line) for line in file.open()]
    calls = [row["rollout/api/calls/mean"] for row in rows if "rollout/api/calls/mean" in row]
    assert len(calls) == 2
    assert max(calls) > 1  # tools are called
    assert "calls a run" in ended.output
