"""A run over Ray whose workflow asks by HTTP: the server stands in the runner's process."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trinity as trinity_package
from trinity.common.config import load_config
from trinity.common.workflows import WORKFLOWS, Workflow


class AsksFromARunner(Workflow):
    """Asks twice by OpenAI's client, and its judge by name on the same key; the judge pays."""

    def run(self) -> list[Any]:
        client = self.model.get_openai_client()
        messages = [{"role": "user", "content": self.task.raw_task["question"]}]
        for _ in range(2):
            reply = client.chat.completions.create(model=client.model_path, messages=messages)
            said = reply.choices[0].message
            messages += [
                {"role": "assistant", "content": said.content},
                {"role": "user", "content": "more"},
            ]
        marks = [
            self.mark(client, "judge", said.content),
            self.mark(self.auxiliary_models[0], "judge", said.content),
        ]
        experiences = self.model.extract_experience_from_history()
        for experience in experiences:
            experience.reward = float(len(said.content) % 3)
            experience.info["marks"] = marks
        return experiences

    def mark(self, client: Any, model: str, text: str) -> str:
        """Return what a model says to a text; the judge is greedy: equal texts, equal marks."""
        messages = [{"role": "user", "content": text}]
        reply = client.chat.completions.create(model=model, messages=messages, temperature=0)
        return reply.choices[0].message.content


@pytest.mark.ray
@pytest.mark.acceptance
def test_a_run_over_ray_trains_on_calls_by_http_and_has_a_judge_beside_it(
    config_dict, taskset, write_yaml, a_process, tiny_model, ray_cluster
) -> None:
    WORKFLOWS.register_module("asks_from_a_runner")(AsksFromARunner)
    taskset["default_workflow_type"] = "asks_from_a_runner"
    del taskset["default_reward_fn_type"]
    config_dict["explorer"]["rollout_model"] = {"enable_openai_api": True}
    judge = {"name": "judge", "model_path": str(tiny_model), "max_response_tokens": 4}
    config_dict["explorer"]["auxiliary_models"] = [judge]
    config_dict["buffer"]["total_steps"] = 1
    config_dict["data_processor"] = {"experience_pipeline": {"save_input": True}}

    result = trinity_package.run(load_config(write_yaml(config_dict)), local=False)

    lines = (result.directory / "buffer" / "explorer_output.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert result.exit_code == 0
    assert len(rows) == 4 * 4 * 2  # tasks, runs, calls
    assert {row["info"].get("continues") for row in rows} <= {None, "0-0"}
    assert all(one == other for one, other in (row["info"]["marks"] for row in rows))
