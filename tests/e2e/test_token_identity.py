"""What is trained is what the engine sampled, token by token, in both environments.

The engine's own record is the truth. Each case plays 8 episodes (100 with ``-m acceptance``),
several at once, as the explorer does; replies are no clean texts, and message lists are built anew
for each turn.
"""

from __future__ import annotations

import random
import re

import pytest
from trinity.common.config import Config, FormatConfig
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows import Task
from trinity.explorer.requests import requests_of
from trinity.explorer.scheduler_builder import build_scheduler
from trinity_testing.checks.sampled_tokens import not_as_sampled, trained_spans
from trinity_testing.engines import AnsweringEngine
from trinity_testing.tiny import CHAT_TEMPLATE, make_tiny_tokenizer

pytestmark = pytest.mark.slow

NUM_EPISODES = 100
NUM_TURNS = 4
FORGETS_THOUGHTS = CHAT_TEMPLATE.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last"
    " else message['content'])",
)
TEMPLATES = {"keeps all": CHAT_TEMPLATE, "forgets thoughts": FORGETS_THOUGHTS}
WORKFLOWS = [
    ("webshop", "workflow", "WebShopWorkflow"),
    ("webshop", "step_wise", "StepWiseWebShopWorkflow"),
    ("alfworld", "workflow", "AlfworldWorkflow"),
    ("alfworld", "step_wise", "StepWiseAlfworldWorkflow"),
]
SCRAPS = ["é ", "\n\n", " <b>", "go", "😀", "  ", "</", "12 34", "the the", "\t", "<|im_start", "&"]


class Rambling(AnsweringEngine):
    """Thinks in scraps and takes one of the listed actions; every fifth reply is no action."""

    def answer(self, request):
        draw = random.Random(str(request.key))
        prompt = self.tokenizer.decode(list(request.prompt_token_ids), skip_special_tokens=False)
        seen = prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
        listed = re.split(r"(?:Available actions|Admissible commands):\n", seen)[-1].splitlines()
        thought = "".join(draw.choices(SCRAPS, k=draw.randint(0, 8)))
        if draw.random() < 0.2:
            return f"<think>{thought}</think>{thought}"
        action = draw.choice(listed).replace("search[words]", "search[a red table]")
        return f"<think>{thought}</think>{thought[:3]}<action>{action}</action>{thought[3:5]}"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return a function that gives the rows, the prompt key and the arguments of a plugin."""
    made = {}

    def give(plugin):
        pytest.importorskip(f"trinity_envs_{plugin}")
        if plugin not in made:
            made[plugin] = globals()[f"{plugin}_rows"](tmp_path_factory.mktemp(plugin))
        return made[plugin]

    return give


def webshop_rows(folder):
    from trinity_envs_webshop.synthetic import write_catalogue

    write_catalogue(folder / "shop", num_products=60)
    rows = [{"task_id": number % 50} for number in range(NUM_EPISODES)]
    return rows, "task_id", {"data": str(folder / "shop")}


def alfworld_rows(folder):
    pytest.importorskip("textworld")
    from trinity_envs_alfworld.generate_write import write_games

    write_games(folder, count=2, sizes=("tiny",), splits={"train": 1.0})
    games = sorted(map(str, folder.rglob("game.tw-pddl")))
    rows = [{"game_file": games[number % 2]} for number in range(NUM_EPISODES)]
    return rows, "game_file", {}


def episodes(cls, engine, *, rows, template):
    """Return how each episode ended, and what the engine said in it."""
    data, key, arguments = rows
    form = ChatFormat(make_tiny_tokenizer(chat_template=template))
    settings = ModelSettings(
        model_path="rambling", max_model_len=32768, max_response_tokens=400, enable_history=True
    )
    config = Config()
    config.explorer.max_retry_times, config.explorer.runner_per_model = 0, 2
    scheduler = build_scheduler(
        config, engines=[engine], model=ModelWrapper(engine, form, settings)
    )
    requests = [
        request
        for number, row in enumerate(data)
        for request in requests_of(
            Task(
                workflow=cls,
                raw_task=row,
                format_args=FormatConfig(prompt_key=key),
                workflow_args=arguments | {"max_env_steps": NUM_TURNS},
            ),
            batch="1",
            number=number,
            max_repeat_times=None,
        )
    ]
    results = scheduler.run(requests)
    scheduler.close()
    said = {number: [] for number in range(len(data))}
    for exchange in engine.exchanges:
        said[exchange.request.key.task].append(exchange)
    return results, said


@pytest.mark.parametrize(
    "num_episodes", [8, pytest.param(NUM_EPISODES, marks=pytest.mark.acceptance)]
)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow[2])
def test_the_trained_tokens_of_episodes_are_the_engines(
    workflow, template, num_episodes, rows
) -> None:
    plugin, module, name = workflow
    data, *rest = rows(plugin)
    data = (data[:num_episodes], *rest)
    cls = getattr(__import__(f"trinity_envs_{plugin}.{module}", fromlist=[name]), name)

    results, said = episodes(cls, Rambling(), rows=data, template=TEMPLATES[template])

    assert [r.failure for r in results if r.failure] == []
    assert sum(map(len, said.values())) > 2 * num_episodes
    is_step_wise, is_whole = module == "step_wise", template == "keeps all"
    for number, result in enumerate(results):
        exps, turns = result.experiences, len(said[number])
        assert not_as_sampled(exps, said[number]) == ""
        assert len({exp.reward for exp in exps}) == 1  # earlier chains have the run's reward
        assert sum(len(trained_spans(exp)) for exp in exps) == turns
        assert len(exps) == (1 if is_whole and not is_step_wise else turns)
        assert sum("is_earlier_chain" in exp.info for exp in exps) == (
            0 if is_whole or is_step_wise else turns - 1
        )
