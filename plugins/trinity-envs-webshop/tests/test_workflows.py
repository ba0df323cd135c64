"""The workflows on engines without a model."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from trinity.common.config import FormatConfig
from trinity.common.workflows import Task
from trinity.common.workflows.recorded_env import Recording
from trinity.errors import ConfigError, DataError, EnvError
from trinity_debug.environments import RepeatedEnvironments, answers_of
from trinity_envs_webshop.env import WebShopEnv
from trinity_envs_webshop.oracle import oracle_action
from trinity_envs_webshop.prompt import format_observation, parse_action, validate_action
from trinity_envs_webshop.settings import EnvSettings
from trinity_envs_webshop.step_wise import StepWiseWebShopWorkflow
from trinity_envs_webshop.workflow import WEBSHOP_SYSTEM_PROMPT, WebShopWorkflow
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled
from trinity_testing.engines import AnsweringEngine, ScriptedEngine
from trinity_testing.scripted_model import model_over

BOTH = [WebShopWorkflow, StepWiseWebShopWorkflow]
SEARCH = "<think>I look for it.</think><action>search[table]</action>"


class OracleEngine(AnsweringEngine):
    """Says what the oracle does, in a session of its own."""

    def __init__(self, shop, session):
        super().__init__()
        self._env = WebShopEnv(shop)
        self._env.reset(session)

    def answer(self, request):
        action = oracle_action(self._env)
        self._env.step(action)
        return f"<think>I know.</think>\n<action>{action}</action>"


def a_workflow(cls, engine, *, folder, session=0, **arguments):
    task = Task(
        raw_task={"task_id": session, "target": ""},
        format_args=FormatConfig(prompt_key="task_id"),
        workflow_args={"data": str(folder), **arguments},
    )
    return cls(task=task, model=model_over(engine), auxiliary_models=None)


def the_run(cls, *answers, folder, **given):
    engine = ScriptedEngine(*answers, repeat=True)
    return a_workflow(cls, engine, folder=folder, **given).run(), engine


@pytest.mark.parametrize("cls", BOTH)
def test_the_oracle_plays_whole_sessions_and_only_the_engines_tokens_are_trained(
    cls, shop, invented_folder
):
    num_won = 0
    for session in range(50):  # of both workflows: 100 episodes
        engine = OracleEngine(shop, session)
        experiences = a_workflow(cls, engine, folder=invented_folder, session=session).run()
        num_won += experiences[-1].metrics["success"] == 1.0
        said = [list(one.completions[0].token_ids) for one in engine.exchanges]
        trained = []
        for experience in experiences:
            response = experience.tokens[experience.prompt_length :].tolist()
            is_masked = experience.action_mask is not None
            mask = experience.action_mask.tolist() if is_masked else [True] * len(response)
            trained += [token for token, is_own in zip(response, mask, strict=True) if is_own]
            for span in trained_spans(experience):
                assert not unsampled(experience, span, engine.exchanges)
        assert trained == [token for tokens in said for token in tokens]
    assert num_won >= 45


def test_a_session_is_one_experience_or_one_a_step(shop, invented_folder):
    (whole,) = a_workflow(
        WebShopWorkflow, OracleEngine(shop, 3), folder=invented_folder, session=3
    ).run()
    engine = OracleEngine(shop, 3)
    steps = a_workflow(StepWiseWebShopWorkflow, engine, folder=invented_folder, session=3).run()

    assert len(steps) == len(engine.exchanges) == whole.metrics["env_rounds"] + 1
    assert [step.eid.step for step in steps] == list(range(len(steps)))
    assert {step.reward for step in steps} == {whole.reward} == {1.0}
    assert steps[-1].metrics["env_done"] == whole.metrics["env_done"] == 1.0
    assert len({step.info["env_state_hash"] for step in steps}) == len(steps)
    assert whole.info["tagger"] == "lexicon"


@pytest.mark.parametrize("cls", BOTH)
def test_a_session_that_ends_without_buying_costs_a_tenth(cls, invented_folder):
    experiences, engine = the_run(cls, SEARCH, folder=invented_folder, max_env_steps=4)

    assert {one.reward for one in experiences} == {-0.1}
    assert len(engine.exchanges) == 4
    metrics = experiences[-1].metrics
    assert (metrics["env_rounds"], metrics["env_done"], metrics["success"]) == (3, 0, 0)


@pytest.mark.parametrize("cls", BOTH)
def test_fifteen_steps_unless_told(cls, invented_folder):
    _, engine = the_run(cls, SEARCH, folder=invented_folder)
    assert len(engine.exchanges) == 15


def test_the_rows_integer_is_the_session_and_the_goal(shop, invented_folder):
    _, engine = the_run(WebShopWorkflow, SEARCH, folder=invented_folder, session=7, max_env_steps=1)
    prompt = engine.tokenizer.decode(list(engine.exchanges[0].request.prompt_token_ids))
    assert shop.goals[7].instruction_text in prompt
    assert WEBSHOP_SYSTEM_PROMPT.strip() in prompt
    assert "search[words]" in prompt


def test_a_named_session_has_the_same_goal_in_every_run(invented_folder):
    settings = EnvSettings.of({"data": str(invented_folder)})
    texts = {settings.environment("seven").reset("seven")[0] for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("I do not know.", "No action was found."),
        ("<action>buy the table</action>", "No action was found."),
        ("<action>click[buy now]</action>", "nothing to click named 'buy now'"),
        ("<action>click[search]</action>", "nothing to click named 'search'"),
    ],
)
def test_an_action_that_is_not_allowed_is_answered_with_words(reply, problem, invented_folder):
    _, engine = the_run(WebShopWorkflow, reply, folder=invented_folder, max_env_steps=2)
    prompt = engine.tokenizer.decode(list(engine.exchanges[1].request.prompt_token_ids))
    assert problem in prompt
    assert "click[" in prompt


def test_a_search_needs_a_search_bar(invented_folder):
    _, engine = the_run(WebShopWorkflow, SEARCH, folder=invented_folder, max_env_steps=3)
    prompt = engine.tokenizer.decode(list(engine.exchanges[2].request.prompt_token_ids))
    assert "This page has no search bar." in prompt


def test_the_last_action_of_a_reply_counts():
    text = "<action>search[a]</action> no, <action>\nclick[B0]\n</action>"
    assert parse_action(text) == "click[B0]"
    assert parse_action("<action>search[a]") == ""


def test_the_message_lists_what_can_be_done():
    actions = {"has_search_bar": True, "clickables": ["search", "x"]}
    assert format_observation("PAGE", actions).endswith(
        "Available actions:\nsearch[words]\nclick[x]"
    )
    assert validate_action("click[X]", actions) == (True, "")


@pytest.mark.parametrize("cls", BOTH)
def test_a_misspelt_argument_is_refused_with_the_nearest(cls, invented_folder):
    with pytest.raises(ConfigError, match=r"no 'humans_goals'. Did you mean 'human_goals'\?"):
        the_run(cls, SEARCH, folder=invented_folder, humans_goals=True)


@pytest.mark.parametrize("steps", [0, "many", True])
def test_max_env_steps_is_a_number_above_0(steps, invented_folder):
    with pytest.raises(ConfigError, match="max_env_steps is"):
        the_run(WebShopWorkflow, SEARCH, folder=invented_folder, max_env_steps=steps)


def test_a_row_without_a_session_is_a_clear_error(invented_folder):
    with pytest.raises(DataError, match="task_id is None, no session"):
        the_run(WebShopWorkflow, SEARCH, folder=invented_folder, session=None)


def test_missing_data_are_a_clear_error(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"is no folder with WebShop's data\. Fetch the three"):
        the_run(WebShopWorkflow, SEARCH, folder=tmp_path / "none")
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    with pytest.raises(DataError, match="nothing says where WebShop's data are: set WEBSHOP_DATA"):
        EnvSettings.of({}).environment(0)


def test_a_run_that_fails_closes_its_environment(shop, invented_folder):
    engine = ScriptedEngine(SEARCH, repeat=True, fails_at=1)
    workflow = a_workflow(WebShopWorkflow, engine, folder=invented_folder)
    env = WebShopEnv(shop)
    with pytest.raises(Exception, match="fail"):
        workflow.generate_env_inference_samples(env, 0, 1)
    with pytest.raises(RuntimeError, match="the environment is closed"):
        env.step("search[x]")


class Broken:
    """A search engine that fails."""

    def __init__(self, catalogue):
        pass

    def search(self, text, *, limit):
        raise KeyError("no such index")


@pytest.mark.parametrize("cls", BOTH)
def test_what_the_environment_raises_becomes_an_error_of_that_run(cls, invented_folder):
    sys.modules.setdefault("broken_of_the_tests", sys.modules[__name__])
    with pytest.raises(EnvError, match=r"step\('search\[table\]'\) of session 0: KeyError"):
        the_run(cls, SEARCH, folder=invented_folder, search_engine="broken_of_the_tests:Broken")


def test_the_published_names_lead_here():
    from trinity.common.workflows import WORKFLOWS
    from trinity.common.workflows import WebShopWorkflow as Exported
    from trinity.common.workflows.envs.webshop.webshop_workflow import WebShopWorkflow as Published

    assert Exported is Published is WebShopWorkflow is WORKFLOWS.get("webshop_workflow")


@pytest.mark.parametrize("cls", BOTH)
def test_wrong_arguments_and_missing_data_are_found_before_a_run(cls, monkeypatch, tmp_path):
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"no 'tager'\. Did you mean 'tagger'\?"):
        cls.check_arguments({"tager": "lexicon"})
    with pytest.raises(DataError, match="nothing says where WebShop's data are"):
        cls.check_arguments({})
    with pytest.raises(DataError, match=r"holds no items_shuffle\.json"):
        cls.check_arguments({"data": str(tmp_path)})


def played(cls, environments, engine, *, folder):
    workflow = a_workflow(cls, engine, folder=folder, session=3)
    workflow.task = replace(workflow.task, environments=environments)
    return workflow.run()


@pytest.mark.parametrize("cls", BOTH)
def test_a_recorded_session_needs_no_shop_and_finds_another_action(
    cls, shop, invented_folder, tmp_path
) -> None:
    recording = Recording()
    first = played(cls, recording, OracleEngine(shop, 3), folder=invented_folder)
    answers = answers_of(recording.text(), place="run/1/0/0")
    assert answers.problem == ""

    empty = tmp_path / "no-shop"
    repeated = RepeatedEnvironments(answers, is_over=lambda: False)
    again = played(cls, repeated, OracleEngine(shop, 3), folder=empty)
    assert [one.tokens.tolist() for one in again] == [one.tokens.tolist() for one in first]
    assert [one.metrics for one in again] == [one.metrics for one in first]
    assert (repeated.departure, repeated.left) == (None, None)

    repeated = RepeatedEnvironments(answers, is_over=lambda: False)
    other = ScriptedEngine("<think>x</think><action>search[nothing]</action>", repeat=True)
    with pytest.raises(EnvError, match="of the environment differs"):
        played(cls, repeated, other, folder=empty)
    assert repeated.departure.now == "step('search[nothing]')"
    assert repeated.departure.was.startswith("step('search[")
