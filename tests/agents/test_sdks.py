"""Agents of the published SDKs run as they are; what is recorded is what the engine said.

    nox -s sdks

Each of ``examples/agents`` solves a task with two tools on a scripted engine.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from trinity.common.config import load_config
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, GenerationRequest, RunKey
from trinity.common.workflows.agent import AgentWorkflow
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine, script_tokenizer

pytestmark = pytest.mark.sdk

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "agents"
TEMPLATE = Path(__file__).with_name("chat_templates") / "qwen2_5_like.jinja"
ROW = {"question": "Add 3 and 4, then multiply the sum by 5.", "answer": "35"}
CALLS = (
    '{"name":"add",  "arguments":{"b": 4,"a":3}}',  # no SDK spells it back like this
    '{"arguments": {"a": 7, "b": 5}, "name": "multiply"}',
)
SCRIPT = (*(f"<tool_call>\n{call}\n</tool_call>" for call in CALLS), "35")
FORCED = (*CALLS, '{"name": "final_answer", "arguments": {"answer": "35"}}')
PACKAGES = {
    "openai_client": "openai",
    "command": "trinity-core",
    "anthropic_client": "anthropic",
    "openai_agents": "openai-agents",
    "openai_agents_by_chat": "openai-agents",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic-ai-slim",
    "smolagents": "smolagents",
}
REWRITES = {"smolagents"}  # it sends its earlier calls back as text


class HoldingEngine(ScriptedEngine):
    """Says its script also where a form is asked for, which the script must hold to."""

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        if request.structure is not None:
            said = json.loads(self.answers[self.num_samples])
            offered = json.loads(request.structure.text)["anyOf"]
            assert said["name"] in [one["properties"]["name"]["const"] for one in offered]
        return super().submit(replace(request, structure=None))


@pytest.fixture
def model_of():
    """Return what makes the model of a run, with an endpoint."""
    room, made = EndpointHost(), []

    def build(engine: ScriptedEngine) -> ModelWrapper:
        settings = ModelSettings(
            model_path="scripted",
            max_model_len=65536,
            max_response_tokens=1024,
            enable_openai_api=True,
            tool_call_parser="hermes",
        )
        form = ChatFormat(script_tokenizer(), chat_template=TEMPLATE.read_text("utf-8"))
        key = RunKey(batch="1", task=0)
        made.append(ModelWrapper(engine, form, settings, key=key, endpoints=room))
        return made[-1]

    yield build
    for model in made:
        model.close_endpoints()
    room.close()


def test_every_agent_of_the_examples_is_run_here():
    assert {path.stem for path in EXAMPLES.glob("*.yaml") if "tiny" not in path.stem} == {*PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_an_agent_is_recorded_as_the_engine_answered_it(name, model_of, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    engine = HoldingEngine(*(FORCED if name in REWRITES else SCRIPT))
    model = model_of(engine)
    task = a_task(raw_task=ROW, workflow_args=arguments_of(name))

    workflow = AgentWorkflow(task=task, model=model)
    experiences = workflow.run()

    said = engine.exchanges
    assert [one.reward for one in experiences] == [1.0] * 3
    assert model.num_served == len(said) == 3
    for experience, exchange in zip(experiences, said, strict=True):
        prompt, reply = experience.tokens[: experience.prompt_length], exchange.completions[0]
        assert tuple(prompt.tolist()) == exchange.request.prompt_token_ids
        assert tuple(experience.tokens[experience.prompt_length :].tolist()) == reply.token_ids
    names = [one.info["request"] for one in experiences]
    continued = [one.info.get("continues") for one in experiences]
    assert continued == [None, *([None] * 2 if name in REWRITES else names[:-1])]
    package = PACKAGES[name]
    with capsys.disabled():
        goes_on = sum(one is not None for one in continued)
        sys.stdout.write(
            f"\n{name:22} {package} {version(package)}: {model.num_served} calls, "
            f"{len(experiences)} exchanges, ids of the engine in {len(said)}, "
            f"{goes_on} of 2 later calls go on\n"
        )


@pytest.mark.parametrize("kind", ["OpenAIResponsesModel", "OpenAIChatCompletionsModel"])
def test_a_streamed_run_is_recorded_as_one_that_is_not(kind, model_of, monkeypatch):
    agents = pytest.importorskip("agents")
    monkeypatch.syspath_prepend(ROOT)
    example = importlib.import_module("examples.agents.openai_agents")
    model = model_of(ScriptedEngine(*SCRIPT))

    async def streamed() -> str:
        async with model.get_openai_async_client() as client:
            of_sdk = getattr(agents, kind)("scripted", openai_client=client)
            agent = agents.Agent(name="a", tools=[example.add, example.multiply], model=of_sdk)
            result = agents.Runner.run_streamed(agent, "go", run_config=example.UNTRACED)
            async for _ in result.stream_events():
                pass
            return result.final_output

    said = asyncio.run(streamed())

    continued = [one.info.get("continues") for one in model.extract_experience_from_history()]
    assert (said, continued) == ("35", [None, "0-0", "1-0"])


@pytest.mark.parametrize("name", PACKAGES)
def test_the_configuration_of_an_agent_can_be_read(name, monkeypatch):
    monkeypatch.chdir(ROOT)

    config = load_config(EXAMPLES / f"{name}.yaml")

    assert config.buffer.explorer_input.taskset.default_workflow_type == "agent_workflow"


def arguments_of(name):
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["buffer"]["explorer_input"]["taskset"]["workflow_args"]
