"""002: a workflow asks its model by OpenAI's client."""

from __future__ import annotations

from typing import Any, ClassVar

import openai
import pytest
from trinity.common.workflows import WORKFLOWS, Workflow
from trinity.errors import ConfigError


class AsksByClient(Workflow):
    """Asks twice, by both names of its model."""

    seen: ClassVar[list[Any]] = []

    def run(self) -> list[Any]:
        client = self.model.get_openai_client()
        names = [client.models.list().data[0].id, client.model_path]
        messages = [{"role": "user", "content": self.task.raw_task["question"]}]
        replies = [client.chat.completions.create(model=n, messages=messages) for n in names]
        self.seen.append((client, replies))
        experiences = self.model.extract_experience_from_history()
        for experience, reply in zip(experiences, replies, strict=True):
            experience.reward = float(len(reply.choices[0].message.content) % 3)
        return experiences


@pytest.fixture
def asks_by_client(taskset, a_process):
    WORKFLOWS.register_module("tutorial_asks_by_client")(AsksByClient)
    AsksByClient.seen.clear()
    taskset["default_workflow_type"] = "tutorial_asks_by_client"
    del taskset["default_reward_fn_type"]
    return AsksByClient.seen


def test_P060_and_P061_a_workflow_trains_on_what_its_openai_client_asked(
    config_dict, run_it, asks_by_client, rolled_out
) -> None:
    config_dict["explorer"]["rollout_model"] = {"enable_openai_api": True}
    config_dict["data_processor"] = {"experience_pipeline": {"save_input": True}}

    result = run_it()

    rows = rolled_out(result)
    client, (first, _) = asks_by_client[0]
    assert isinstance(client, openai.OpenAI)
    assert result.exit_code == 0
    assert len(rows) == 2 * len(asks_by_client)
    assert {row["eid"]["step"] for row in rows} == {0, 1}
    assert first.usage.completion_tokens in {
        len(row["tokens"]) - row["prompt_length"] for row in rows
    }


def test_P060_switched_off_the_error_names_the_key(config_dict, run_it, asks_by_client) -> None:
    with pytest.raises(ConfigError, match=r"Set explorer\.rollout_model\.enable_openai_api: true"):
        run_it()


class AsksAJudge(Workflow):
    """Lets an auxiliary model speak about the answer."""

    seen: ClassVar[list[Any]] = []

    def run(self) -> list[Any]:
        [judge], [wrapper] = self.auxiliary_models, self.auxiliary_model_wrappers
        messages = [{"role": "user", "content": self.task.raw_task["question"]}]
        [experience] = self.model.chat(messages)
        verdict = judge.chat.completions.create(model=judge.model_path, messages=messages)
        said = verdict.choices[0].message.content
        self.seen.append((judge, wrapper.model_version, verdict.system_fingerprint))
        experience.reward = float(len(said) % 3)
        return [experience]


def test_P136_an_auxiliary_model_is_a_client_whose_weights_and_words_are_never_trained(
    config_dict, taskset, run_it, a_process, rolled_out
) -> None:
    WORKFLOWS.register_module("tutorial_asks_a_judge")(AsksAJudge)
    AsksAJudge.seen.clear()
    taskset["default_workflow_type"] = "tutorial_asks_a_judge"
    del taskset["default_reward_fn_type"]
    judge = {"model_path": config_dict["model"]["model_path"], "name": "judge"}
    config_dict["explorer"]["auxiliary_models"] = [judge]
    config_dict["data_processor"] = {"experience_pipeline": {"save_input": True}}

    result = run_it()

    assert result.exit_code == 0
    assert all(isinstance(client, openai.OpenAI) for client, *_ in AsksAJudge.seen)
    assert {version for _, version, _ in AsksAJudge.seen} == {0}
    assert {fingerprint for *_, fingerprint in AsksAJudge.seen} == {"weights-0"}
    assert len(rolled_out(result)) == len(AsksAJudge.seen)  # the judge's replies are not there
