"""What a user sees when a run goes wrong on the way: one message, a true exit code, nothing lost.

The golden texts are listed in ``test_bad_input.py``.
"""

from __future__ import annotations

import json
import re
import resource

import pytest

pytestmark = pytest.mark.slow

WORKFLOWS = """
import time

from trinity.common.experience import Experience
from trinity.common.workflows import WORKFLOWS, Workflow


@WORKFLOWS.register_module("raises")
class Raises(Workflow):
    def run(self):
        raise KeyError("no such room")


@WORKFLOWS.register_module("returns_nothing")
class ReturnsNothing(Workflow):
    def run(self):
        return None


@WORKFLOWS.register_module("returns_wrong_lengths")
class ReturnsWrongLengths(Workflow):
    def run(self):
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        return [Experience(tokens=answer.tokens, prompt_length=1, logprobs=[0.0], reward=1.0)]


@WORKFLOWS.register_module("returns_nan")
class ReturnsNan(Workflow):
    def run(self):
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        answer.reward = float("nan")
        return [answer]


@WORKFLOWS.register_module("hangs")
class Hangs(Workflow):
    def run(self):
        time.sleep(20)


@WORKFLOWS.register_module("raises_in_the_second_step")
class RaisesLater(Workflow):
    def run(self):
        if str(self.task.batch_id) != "1":
            raise RuntimeError("the room is closed")
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        answer.reward = float(len(answer.response_text) % 2)
        return [answer]


@WORKFLOWS.register_module("returns_too_much")
class ReturnsTooMuch(Workflow):
    def run(self):
        return [Experience(tokens=[1] * 3000, prompt_length=1, reward=1.0)]


@WORKFLOWS.register_module("hides_all")
class HidesAll(Workflow):
    def run(self):
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        answer.reward = float(len(answer.response_text) % 2)
        answer.action_mask = answer.action_mask & False
        return [answer]


@WORKFLOWS.register_module("returns_an_unknown_token")
class ReturnsAnUnknownToken(Workflow):
    def run(self):
        return [Experience(tokens=[1, 2, 10**6], prompt_length=1, reward=1.0)]
"""


@pytest.fixture
def run_workflow(config_dict, taskset, write_yaml, trinity, plugin_dir):
    def run(name, **explorer):
        taskset["default_workflow_type"] = name
        config_dict["explorer"] |= {"max_retry_times": 0} | explorer
        path, folder = write_yaml(config_dict), plugin_dir(WORKFLOWS)
        return trinity("run", "--local", "--config", path, "--plugin-dir", folder)

    return run


@pytest.mark.parametrize(
    "name",
    [
        "raises",
        "returns_too_much",
        pytest.param("returns_nothing", marks=pytest.mark.acceptance),
        pytest.param("returns_wrong_lengths", marks=pytest.mark.acceptance),
        pytest.param("returns_nan", marks=pytest.mark.acceptance),
        pytest.param("returns_an_unknown_token", marks=pytest.mark.acceptance),
    ],
)
def test_a_workflow_that_always_fails_ends_the_run_with_its_name(
    name, run_workflow, golden, tmp_path, status_of
) -> None:
    ended = run_workflow(name)

    assert ended.code == 1, ended.stdout
    golden(ended.stderr, f"run_workflow_{name}", TMP=tmp_path)
    assert (status_of()["status"], status_of()["trained_experiences"]) == ("failed", 0)


def test_a_workflow_that_hangs_is_given_up_after_its_timeout(
    run_workflow, golden, tmp_path
) -> None:
    ended = run_workflow("hangs", max_timeout=1, runner_per_model=16)

    assert ended.code == 1, ended.stdout
    golden(ended.stderr, "run_workflow_hangs", TMP=tmp_path)


def test_failures_that_the_ratio_allows_are_counted_and_the_rest_is_trained(
    run_workflow, status_of
) -> None:
    ended = run_workflow("raises_in_the_second_step", max_failed_ratio=1.0)

    assert ended.code == 0, ended.stderr
    assert status_of()["trained_experiences"] == 16  # 4 tasks x 4 runs of the first step


def test_what_was_trained_before_a_failure_is_saved(run_workflow, run_dir, status_of) -> None:
    ended = run_workflow("raises_in_the_second_step")

    assert ended.code == 1, ended.stdout
    assert (status_of()["status"], status_of()["train_steps"]) == ("failed", 1)
    assert "the room is closed" in status_of()["error"]
    assert (run_dir / "global_step_1" / "state.json").exists()


REWARDS = """
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn

raised = []


@REWARD_FUNCTIONS.register_module("moody")
class Moody(RewardFn):
    def __call__(self, *, response, **kwargs):
        if not raised:
            raised.append(1)
            raise ValueError("no number in the answer")
        return float(len(response) % 2)
"""


def test_the_end_of_a_run_counts_failed_attempts_and_shows_the_first(
    config_dict, taskset, write_yaml, trinity, plugin_dir, status_of
) -> None:
    taskset["default_reward_fn_type"] = "moody"
    path, folder = write_yaml(config_dict), plugin_dir(REWARDS)

    ended = trinity("run", "--local", "--config", path, "--plugin-dir", folder)

    assert ended.code == 0, ended.stderr
    assert re.search(
        r"  failed attempts at rollouts \(retried ones too\): 4\n"  # a group of four is one call
        r"  the first one: workflow_error: .* attempt 1.*"
        r"reward function Moody \(.*rooms\.py:\d+\): ValueError: no number in the answer",
        ended.stdout,
    )
    assert status_of()["failed_attempts"] == 4
    assert "no number in the answer" in status_of()["first_failure"]


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (1_000, "run_disk_full_at_start"),
        (24_000, "run_disk_full_while_exploring"),
        (200_000, "run_disk_full"),
    ],
)
def test_a_full_disk_is_named_and_leaves_no_half_checkpoint(
    room, text, config_dict, write_yaml, trinity, tmp_path, run_dir, golden
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = write_yaml(config_dict)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        ended = trinity("run", "--local", "--config", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert ended.code == 1, ended.stdout
    golden(ended.stderr, text, TMP=tmp_path)
    assert not list(run_dir.glob("*global_step*"))


LENGTHENS = """
from dataclasses import replace

from trinity.common.operators import EXPERIENCE_OPERATORS, ExperienceOperator


@EXPERIENCE_OPERATORS.register_module("lengthens")
class Lengthens(ExperienceOperator):
    def process(self, exps):
        rest = {"logprobs": None, "action_mask": None}
        return [replace(one, tokens=[*one.tokens, *[1] * 3000], **rest) for one in exps], {}
"""


@pytest.mark.parametrize("storage_type", ["queue", "sql"])
def test_3000_tokens_were_trained_with_a_limit_of_96_from_whatever_was_stored(
    storage_type, config_dict, write_yaml, trinity, plugin_dir, status_of
) -> None:
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": {"storage_type": storage_type}}
    operators = {"operators": [{"name": "lengthens"}]}
    config_dict["data_processor"] = {"experience_pipeline": operators}

    path, folder = write_yaml(config_dict), plugin_dir(LENGTHENS)
    ended = trinity("run", "--local", "--config", path, "--plugin-dir", folder)

    assert ended.code == 1, ended.stdout
    assert re.search(
        r"experience 1/0/0/0, workflow simple_workflow, task_index \{.*\}: has 3,0\d\d tokens, "
        r"more than model\.max_model_len 96\. Raise it, or make prompt and response shorter",
        ended.stderr,
    )
    assert status_of()["trained_experiences"] == 0


def test_a_row_of_a_file_beyond_the_context_was_trained(
    config_dict, write_yaml, trinity, status_of, tmp_path
) -> None:
    rows = tmp_path / "answers.jsonl"
    told = [{"prompt": "say", "response": "it " * number} for number in (1, 2, 1000, 3)]
    rows.write_text("\n".join(map(json.dumps, told)))
    store = {"storage_type": "file", "path": str(rows), "format": {"prompt_type": "plaintext"}}
    config_dict |= {"mode": "train", "algorithm": {"algorithm_type": "sft"}}
    config_dict["buffer"] = {"train_batch_size": 4, "trainer_input": {"experience_buffer": store}}

    ended = trinity("run", "--local", "--config", write_yaml(config_dict))

    assert ended.code == 1, ended.stdout
    assert re.search(
        r"row \S*answers\.jsonl, row 3: has [\d,]+ tokens, more than model\.max_model_len 96\.",
        ended.stderr,
    )
    assert status_of()["trained_experiences"] == 0


OPERATOR = """
from trinity.buffer.operators import ExperienceOperator
from trinity.extend import hookimpl


class Best(ExperienceOperator):
    def process(self, exps):
        return [next(one for one in exps if one.reward > 2)], {}


@hookimpl
def trinity_experience_operators():
    return {"best": f"{__name__}:Best"}
"""


@pytest.mark.parametrize(
    ("style", "what"), [("fixed", "explore step 1"), ("fully_async", "a group of rollouts")]
)
def test_an_operator_that_lets_a_stop_iteration_out_fails_the_run_and_does_not_finish_it(
    style, what, config_dict, write_yaml, trinity, plugin_dir, status_of
) -> None:
    config_dict["data_processor"] = {"experience_pipeline": {"operators": [{"name": "best"}]}}
    config_dict["synchronizer"] = {"sync_style": style}
    folder = plugin_dir(OPERATOR)

    ended = trinity("run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder)

    assert ended.code == 1, ended.stdout
    line = " ".join(ended.stderr.split())
    assert f"{what} failed: RuntimeError: StopIteration" in line
    assert "rooms.py:8 (plugin " in line
    assert status_of()["status"] == "failed"


def test_a_mask_that_hides_every_token_is_said_of_each_step(run_workflow) -> None:
    ended = run_workflow("hides_all")

    assert ended.code == 0, ended.stderr
    for step in (1, 2):
        assert f"train step {step} had no token to train on" in ended.stdout + ended.stderr
