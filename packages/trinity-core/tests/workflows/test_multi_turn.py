"""Many turns, one experience: the engine's own tokens, whatever a workflow does to its messages."""

from __future__ import annotations

import asyncio
import random

import pytest
from trinity.common.experience import Experience
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows import MultiTurnWorkflow
from trinity.errors import ConfigError, WorkflowError
from trinity_testing.builders import a_task
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over
from trinity_testing.tiny import CHAT_TEMPLATE, make_tiny_tokenizer

FORGETS_THOUGHTS = CHAT_TEMPLATE.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last"
    " else message['content'])",
)
SYSTEM = {"role": "system", "content": "You walk through a house."}


class Walk(MultiTurnWorkflow):
    """Walks as many rounds as max_env_steps; builds its list anew for each."""

    def run(self):
        memory = [SYSTEM]
        for turn in range(self.max_env_steps):
            memory = memory + [{"role": "user", "content": f"You are in room {turn}."}]  # noqa: RUF005 - as published
            text = self.get_model_response_text(memory)
            memory.append({"role": "assistant", "content": text})
        info = {"env_rounds": turn, "env_done": True, "game": "a house"}
        return [self.process_messages_to_experience(memory, 0.5, info)]


def walk(engine, *, rounds=3, model=None):
    task = a_task(workflow=Walk, workflow_args={"max_env_steps": rounds})
    return Walk(task=task, model=model or model_over(engine))


def model_with(template, engine, **settings):
    form = ChatFormat(make_tiny_tokenizer(chat_template=template))
    options = {"model_path": "tiny", "max_model_len": 4096, "max_response_tokens": 64}
    return ModelWrapper(engine, form, ModelSettings(**(options | settings)))


def test_all_turns_are_one_experience_of_the_engines_tokens() -> None:
    engine = ScriptedEngine("go north", "open the door", "wait")

    [experience] = walk(engine).run()

    said = [token for e in engine.exchanges for token in e.completions[0].token_ids]
    trained = experience.tokens[experience.prompt_length :][experience.action_mask]
    assert trained.tolist() == said
    assert all(not unsampled(experience, s, engine.exchanges) for s in trained_spans(experience))
    assert len(trained_spans(experience)) == 3
    assert experience.reward == 0.5


def test_numbers_of_the_info_are_metrics_and_all_of_it_stays() -> None:
    [experience] = walk(ScriptedEngine("go", repeat=True)).run()

    assert experience.metrics == {"env_rounds": 2.0, "env_done": 1.0}
    assert experience.info["game"] == "a house"
    assert "model_version" in experience.info


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_said_the_trained_ids_are_the_sampled(seed) -> None:
    draw = random.Random(seed)
    replies = ["".join(draw.choices("ab <>/\n'é", k=draw.randint(1, 12))) for _ in range(5)]
    engine = ScriptedEngine(*replies)

    [experience] = walk(engine, rounds=5).run()

    said = [token for e in engine.exchanges for token in e.completions[0].token_ids]
    assert experience.tokens[experience.prompt_length :][experience.action_mask].tolist() == said


def test_where_a_template_forgets_thoughts_every_reply_is_in_one_of_the_chains() -> None:
    engine = ScriptedEngine("<think>a</think>go", "<think>b</think>look", "<think>c</think>stop")
    workflow = walk(engine, model=model_with(FORGETS_THOUGHTS, engine))

    [last] = workflow.run()
    chains = [*workflow.model.earlier_chains(last), last]

    said = [tuple(e.completions[0].token_ids) for e in engine.exchanges]
    trained = [tuple(c.tokens[c.prompt_length :][c.action_mask].tolist()) for c in chains]
    assert trained == said
    assert [tuple(c.tokens[: c.prompt_length].tolist()) for c in chains] == [
        e.request.prompt_token_ids for e in engine.exchanges
    ]
    assert [[round(p, 4) for p in c.logprobs.tolist()] for c in chains] == [
        [round(p, 4) for p in e.completions[0].logprobs] for e in engine.exchanges
    ]


def test_replies_without_thoughts_are_one_chain_under_the_same_template() -> None:
    engine = ScriptedEngine("go", "<think>b</think>look", "stop")
    workflow = walk(engine, model=model_with(FORGETS_THOUGHTS, engine))

    [last] = workflow.run()

    earlier = workflow.model.earlier_chains(last)
    assert [len(trained_spans(chain)) for chain in earlier] == [2]
    assert len(trained_spans(last)) == 1


def test_a_reply_at_another_temperature_is_a_chain_of_its_own() -> None:
    engine = ScriptedEngine("one", "two")
    workflow = walk(engine)
    ask = [{"role": "user", "content": "a"}]
    first = workflow.get_model_response_text(ask, temperature=0.5)
    more = [*ask, {"role": "assistant", "content": first}, {"role": "user", "content": "b"}]
    second = workflow.get_model_response_text(more, temperature=1.0)

    last = workflow.process_messages_to_experience(
        [*more, {"role": "assistant", "content": second}], 1.0
    )

    [earlier] = workflow.model.earlier_chains(last)
    assert (earlier.temperature, last.temperature) == (0.5, 1.0)


def test_the_chains_of_a_copy_are_found_by_its_tokens() -> None:
    engine = ScriptedEngine("<think>a</think>go", "<think>b</think>look")
    workflow = walk(engine, rounds=2, model=model_with(FORGETS_THOUGHTS, engine))

    [last] = workflow.run()
    copy = Experience(tokens=last.tokens, prompt_length=last.prompt_length, reward=1.0)

    assert len(workflow.model.earlier_chains(copy)) == 1


def test_two_episodes_of_one_call_keep_their_own_tokens() -> None:
    engine = ScriptedEngine("go", "a", "go", "b")
    workflow = walk(engine, rounds=2)

    pair = [workflow.run()[0] for _ in range(2)]

    for number, experience in enumerate(pair):
        own = engine.exchanges[2 * number : 2 * number + 2]
        assert all(not unsampled(experience, span, own) for span in trained_spans(experience))


def test_an_observation_longer_than_the_context_cuts_what_follows() -> None:
    engine = ScriptedEngine("go", repeat=True)

    class Floods(Walk):
        def run(self):
            memory = [{"role": "user", "content": "go?"}]
            for text in ("x" * 500, "and now?"):
                reply = self.get_model_response_text(memory)
                memory += [{"role": "assistant", "content": reply}]
                memory += [{"role": "user", "content": text}]
            return [self.process_messages_to_experience(memory[:-1], 1.0)]

    model = model_with(CHAT_TEMPLATE, engine, max_model_len=200, max_response_tokens=20)
    [experience] = Floods(task=a_task(), model=model).run()

    assert (experience.truncate_status, experience.reward) == ("prompt_truncated", 0.0)
    assert len(experience.tokens) <= 200
    assert len(trained_spans(experience)) == 1


class TalksOn(MultiTurnWorkflow):
    """Two turns, the second of which may be longer than the context."""

    def run(self):
        memory = [{"role": "user", "content": "go?"}]
        reply = self.get_model_response_text(memory)
        memory += [{"role": "assistant", "content": reply}]
        memory += [{"role": "user", "content": self.task.task_desc}]
        memory += [{"role": "assistant", "content": "said by nobody"}]
        return [self.process_messages_to_experience(memory, -0.1, truncate_status="theirs")]


@pytest.mark.parametrize(
    ("num_letters", "reward", "status", "metrics"),
    [(20, -0.1, "theirs", {}), (500, 0.0, "response_truncated", {"context_filled:sum": 1.0})],
)
def test_a_conversation_that_fills_the_context_has_the_reward_0_and_is_counted(
    num_letters, reward, status, metrics
) -> None:
    engine = ScriptedEngine("go")
    model = model_with(CHAT_TEMPLATE, engine, max_model_len=200, max_response_tokens=20)
    task = a_task(raw_task={"question": "x" * num_letters, "answer": ""})

    [experience] = TalksOn(task=task, model=model).run()

    assert (experience.reward, experience.truncate_status) == (reward, status)
    assert experience.metrics == metrics


def test_a_conversation_that_fills_the_context_must_have_a_reward_that_is_a_number() -> None:
    engine = ScriptedEngine("go")
    model = model_with(CHAT_TEMPLATE, engine, max_model_len=200, max_response_tokens=20)
    workflow = TalksOn(task=a_task(), model=model)
    asked = [{"role": "user", "content": "go?"}]
    talk = [*asked, {"role": "assistant", "content": workflow.get_model_response_text(asked)}]
    talk.append({"role": "user", "content": "x" * 500})

    with pytest.raises(WorkflowError, match="the reward of process_messages_to_experience is 'a'"):
        workflow.process_messages_to_experience(talk, "a")


def test_messages_without_a_reply_of_the_model_are_refused(golden) -> None:
    workflow = walk(ScriptedEngine("go", repeat=True))
    workflow.get_model_response_text([SYSTEM])

    with pytest.raises(WorkflowError) as caught:
        workflow.process_messages_to_experience(
            [SYSTEM, {"role": "assistant", "content": "I never said that"}], 1.0
        )

    golden(str(caught.value), "multi_turn_without_a_reply")


def test_a_reward_that_is_no_number_is_refused() -> None:
    workflow = walk(ScriptedEngine("go"))
    messages = [SYSTEM]
    messages.append({"role": "assistant", "content": workflow.get_model_response_text(messages)})

    with pytest.raises(WorkflowError, match="the reward of process_messages_to_experience is 'a'"):
        workflow.process_messages_to_experience(messages, "a")


async def _awaited(workflow):
    text = await workflow.get_model_response_text_async([SYSTEM])
    messages = [SYSTEM, {"role": "assistant", "content": text}]
    return await workflow.process_messages_to_experience_async(messages, 1.0, {}, "x")


def test_the_awaiting_form_gives_the_same() -> None:
    engine = ScriptedEngine("go")
    experience = asyncio.run(_awaited(walk(engine)))

    assert experience.tokens[experience.prompt_length :].tolist() == list(
        engine.exchanges[0].completions[0].token_ids
    )
    assert experience.truncate_status == "x"


def test_what_the_task_gives_may_be_set_by_the_workflow() -> None:
    class Own(Walk):
        max_env_steps = 4

        def __init__(self, *, task, model, auxiliary_models=None):
            super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
            self.task_desc = f"game {task.task_desc}"

    workflow = Own(task=a_task(), model=model_over(ScriptedEngine("go")))
    plain = walk(ScriptedEngine("go"))

    assert (workflow.max_env_steps, workflow.task_desc[:5]) == (4, "game ")
    assert plain.task_desc == plain.task.task_desc
    assert Walk(task=a_task(), model=plain.model).max_env_steps == 30
    with pytest.raises(ConfigError, match="max_env_steps is 0"):
        _ = walk(ScriptedEngine("go"), rounds=0).max_env_steps
