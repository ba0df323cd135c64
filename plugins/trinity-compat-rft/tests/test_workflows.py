"""What the published workflows ask, and what their answers are worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from trinity.common.rewards import RewardFn
from trinity.common.workflows import WORKFLOWS
from trinity.errors import BadTaskError, ConfigError, DataError
from trinity.explorer.finish import finished
from trinity.explorer.requests import requests_of
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

TRUTH_KNOWN = 5  # the number of a task for which it is drawn that the truth is known
RIGHT = "<think>40 + 6</think> It is \\boxed{46}."


def run(name, *answers, judge=(), repeat_times=1, **fields):
    """Return the workflow and its experiences, over a model that says these answers."""
    task = a_task(workflow=name, repeat_times=repeat_times, **fields)
    judges = [model_over(ScriptedEngine(*judge))] if judge else []
    model = model_over(ScriptedEngine(*answers))
    workflow = task.to_workflow(model, judges)
    return workflow, workflow.run()


def rewards(experiences) -> list[float]:
    return [experience.reward for experience in experiences]


@pytest.mark.parametrize("name", ["math_boxed_workflow", "async_math_boxed_workflow"])
def test_a_boxed_answer_is_worth_1_each_run_has_its_number(name) -> None:
    _, experiences = run(name, RIGHT, "46", "\\boxed{4}", repeat_times=3)

    assert rewards(experiences) == [1.0, 0.0, 0.0]
    assert [experience.eid.run for experience in experiences] == [0, 1, 2]
    assert experiences[0].metrics["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [1.0, 1.0]),
        ({"with_think": True}, [1.0, 0.9]),
        ({"with_think": True, "format_score_coef": 0.25}, [1.0, 0.75]),
    ],
)
def test_a_boxed_answer_without_thinking_loses_what_the_file_says(arguments, expected) -> None:
    answers = [RIGHT, "\\boxed{46}"]
    _, experiences = run("math_boxed_workflow", *answers, workflow_args=arguments, repeat_times=2)

    assert rewards(experiences) == pytest.approx(expected)


def test_a_base_model_continues_a_plain_text() -> None:
    form = {"prompt_key": "question", "response_key": "answer", "system_prompt": "Be brief."}
    _, (experience,) = run(
        "math_boxed_workflow", RIGHT, workflow_args={"use_base": True}, format_args=form
    )

    assert experience.prompt_text == "System:Be brief.\nUser:\nWhat is 40 + 6?\nAssistant:\n"
    assert experience.reward == 1.0


def test_a_reply_that_was_cut_is_not_trained_on() -> None:
    _, (experience,) = run("math_boxed_workflow", RIGHT, rollout_args={"max_tokens": 5})

    assert experience.truncate_status == "response_truncated"
    assert torch.equal(experience.action_mask, torch.zeros(5, dtype=torch.bool))


class SeesAll(RewardFn):
    """Notes what it was called with."""

    def __call__(self, response, truth, response_token, with_think) -> dict[str, float]:
        return {"num_tokens": float(len(response_token)), "thinks": float(with_think)}


def test_a_reward_gets_the_tokens_and_options_that_it_names_and_no_others() -> None:
    _, (experience,) = run("math_boxed_workflow", "abc", reward_fn=SeesAll)

    assert experience.metrics["num_tokens"] == experience.response_length
    assert experience.metrics["thinks"] == 0.0


def test_the_reward_of_dapo_is_named_by_the_file_and_gets_the_tokens() -> None:
    penalty = {"enable_overlong_penalty": True, "penalty_factor": 1.0}
    _, experiences = run(
        "math_boxed_workflow",
        "\\boxed{46}",
        "\\boxed{4}",
        repeat_times=2,
        reward_fn="math_dapo_reward",
        reward_fn_args={**penalty, "max_response_length": 10, "cache_length": 2},
    )

    # "\boxed{46}" and the end of the turn are 11 tokens: over the limit of 10; "\boxed{4}" are 10
    assert rewards(experiences) == [1.0 - 1.0, -1.0 - 1.0]
    assert experiences[0].info["extracted_answer"] == "46"


@pytest.mark.parametrize("name", ["math_eval_workflow", "async_math_eval_workflow"])
def test_an_evaluation_gives_accuracy_and_no_reward(name) -> None:
    _, (experience,) = run(name, "The answer is 46.", is_eval=True)

    assert (experience.metrics["accuracy"], experience.reward) == (1.0, 0.0)
    assert experience.temperature == 0.6


def test_an_evaluation_is_not_trained_on() -> None:
    with pytest.raises(ConfigError, match="Name it in eval_tasksets"):
        run("math_eval_workflow", "46")


def test_an_evaluation_reads_the_column_question() -> None:
    form = {"prompt_key": "problem", "response_key": "answer"}
    row = {"problem": "1 + 1", "answer": "2"}

    with pytest.raises(BadTaskError, match="reads the column 'question'; the row has problem"):
        run("math_eval_workflow", "2", is_eval=True, raw_task=row, format_args=form)


class RewardModel(RewardFn):
    """Scores as a published reward model does: by the experience and the messages."""

    def __call__(self, response, messages, ground_truth=None, **_) -> dict[str, float]:
        is_right = ground_truth in response.response_text
        return {"quality": 0.25 + 0.5 * is_right, "asked": float(len(messages))}


@pytest.mark.parametrize("name", ["math_rm_workflow", "async_math_rm_workflow"])
def test_a_reward_model_gets_experience_messages_and_truth(name) -> None:
    _, experiences = run(name, "46", "47", reward_fn=RewardModel, repeat_times=2)

    assert rewards(experiences) == [1.75, 1.25]
    assert experiences[1].metrics["quality"] == 0.25


@pytest.mark.parametrize("name", ["math_ruler_workflow", "async_math_ruler_workflow"])
def test_a_judge_compares_the_answers_of_a_group(name) -> None:
    think = "<think>a</think> <answer>{}</answer>"
    answers = [think.format(46), think.format(47)]
    workflow, experiences = run(name, *answers, judge=["The first: [0.75, 0.5]"], repeat_times=2)

    assert rewards(experiences) == [0.75, 0.5]
    # the reward of mathematics, which is not learned from: 1 + 0.1, and 0 + 0.1
    assert [e.metrics["gold_reward"] for e in experiences] == pytest.approx([1.1, 0.1])
    assert [e.metrics["judge_success"] for e in experiences] == [1.0, 1.0]
    asked = workflow.judge._engine.exchanges[0].request.prompt_token_ids
    text = workflow.judge._chat_format.decode(asked)
    assert "Question: What is 40 + 6?" in text
    assert f"Candidate solution 2: {answers[1]}" in text


def test_a_judge_without_a_list_gives_0_to_all() -> None:
    _, experiences = run("math_ruler_workflow", "a", "b", judge=["Both."], repeat_times=2)

    assert rewards(experiences) == [0.0, 0.0]
    assert experiences[0].metrics["judge_success"] == 0.0


@pytest.mark.parametrize("name", ["math_ruler_workflow", "rubric_judge_workflow"])
def test_a_judge_is_missing_in_one_line(name) -> None:
    with pytest.raises(ConfigError, match=r"needs auxiliary models: its judge is explorer\.aux"):
        run(name, "a")


def test_a_rubric_is_shown_with_its_weights_and_the_mark_is_a_tenth() -> None:
    rubric = [{"description": "names a number", "weight": 2}]
    workflow, experiences = run(
        "rubric_judge_workflow",
        "46",
        "I do not know.",
        judge=['```json\n{"rating": 8}\n```', "none"],
        repeat_times=2,
        raw_task={"question": "40 + 6?", "answer": "46", "rubric": rubric},
    )

    assert rewards(experiences) == [0.8, 0.0]
    assert experiences[0].metrics["judge_success"] == 0.5
    asked = workflow.judge._engine.exchanges[1].request.prompt_token_ids
    text = workflow.judge._chat_format.decode(asked)
    assert "Rubric 0 (weight: 2): names a number" in text
    assert "<response>\nI do not know.\n</response>" in text


def test_a_policy_that_judges_itself_is_rewarded_with_its_own_scores() -> None:
    think = "<think>a</think> <answer>{}</answer>"
    task = {"batch_id": 0, "task_id": 0}  # drawn: the truth is not known
    _, experiences = run(
        "math_trainable_ruler_workflow",
        think.format(46),
        think.format(47),
        "[1, 0.25]",
        repeat_times=2,
        **task,
    )

    assert rewards(experiences) == [1.0, 0.25]
    assert [e.metrics["judge_success"] for e in experiences] == [1.0, 1.0]


def test_verdicts_are_learned_from_where_the_truth_is_known() -> None:
    think = "<think>a</think> <answer>{}</answer>"
    _, experiences = run(
        "math_trainable_ruler_workflow",
        think.format(46),
        think.format(47),
        "[1, 0]",
        "no list",
        repeat_times=2,
        batch_id=0,
        task_id=TRUTH_KNOWN,
    )

    # gold: 1.1 and 0.1, scaled (x + 0.1) / 1.2: 1 and 1/6; the verdict [1, 0] is off by 1/12
    assert rewards(experiences) == pytest.approx([1.1, 0.1, 1 - 1 / 12, 0.0])
    names = [str(experience.eid.task) for experience in experiences]
    assert names == [f"{TRUTH_KNOWN}"] * 2 + [f"{TRUTH_KNOWN}-ruler"] * 2
    assert [experience.eid.run for experience in experiences] == [0, 1, 0, 1]


def test_verdicts_stay_a_group_of_their_own() -> None:
    model = model_over(ScriptedEngine("46", "47", "[1, 0]", "[0, 1]"))
    group = a_task(workflow="math_trainable_ruler_workflow", repeat_times=2)
    (request,) = requests_of(group, batch="0", number=TRUTH_KNOWN, max_repeat_times=None)

    done = finished(request.task.to_workflow(model).run(), request=request, version=0)

    assert [experience.eid.tid for experience in done].count("0/5") == 2
    assert [experience.eid.tid for experience in done].count("0/5-ruler") == 2
    assert {experience.eid.step for experience in done} == {0}


def test_every_workflow_is_found_by_its_published_path() -> None:
    import trinity.common.workflows.customized_math_workflows as published

    assert published.MathBoxedWorkflow is WORKFLOWS.get("math_boxed_workflow")


BOTS = {
    "raw_task": {
        "prompt": [{"role": "user", "content": "40 + 6?"}],
        "reward_model": {"ground_truth": "46"},
    },
    "format_args": {"prompt_key": "prompt", "response_key": "reward_model.ground_truth"},
}


def test_rows_of_messages_with_columns_within_columns_are_asked_and_scored() -> None:
    workflow, experiences = run(
        "bots_math_boxed_workflow", "\\boxed{46}", "\\boxed{47}", repeat_times=2, **BOTS
    )

    assert rewards(experiences) == [1.0, 0.0]
    assert workflow.format_messages() == [{"role": "user", "content": "40 + 6?"}]


def test_the_rewards_of_a_row_are_noted_in_a_file(tmp_path) -> None:
    log = tmp_path / "deep" / "log.jsonl"
    for _ in range(2):
        run(
            "bots_ref_eval_collect_math_boxed_workflow",
            "\\boxed{46}",
            workflow_args={"log_file": str(log)},
            **BOTS,
        )

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    question = [{"role": "user", "content": "40 + 6?"}]
    noted = {"model_version": 0, "rewards": [1.0], "question": question, "truth": "46"}
    assert lines == [noted, noted]


def test_a_missing_column_within_a_column_is_named() -> None:
    row = {"prompt": "40 + 6?", "reward_model": {}}

    with pytest.raises(DataError, match=r"has no key 'reward_model\.ground_truth'"):
        run("bots_math_boxed_workflow", "46", **{**BOTS, "raw_task": row})


def test_a_published_dotted_path_stands_for_a_workflow_until_somebody_has_the_module(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    others = [place for place in sys.path if not (Path(place) / "examples").is_dir()]
    monkeypatch.setattr(sys, "path", others)
    path = "examples.bots.workflow.bots_math_boxed_workflow.BOTSMathBoxedWorkflow"
    assert WORKFLOWS.get(path).__module__ == "trinity_compat_rft.workflows.bots"
    assert path not in WORKFLOWS.names()

    package = tmp_path / "examples" / "bots" / "workflow"
    package.mkdir(parents=True)
    (package / "bots_math_boxed_workflow.py").write_text("class BOTSMathBoxedWorkflow: pass\n")

    try:
        assert WORKFLOWS.get(path).__module__ == path.rpartition(".")[0]
    finally:
        for name in [one for one in sys.modules if one.partition(".")[0] == "examples"]:
            del sys.modules[name]


def test_the_reward_of_rm_gallery_takes_an_experience_or_a_text() -> None:
    _, (experience,) = run("math_rm_workflow", "It is 46.", reward_fn="rm_gallery_reward")
    _, (other,) = run("math_boxed_workflow", "It is 47.", reward_fn="rm_gallery_reward")

    assert rewards([experience, other]) == [1.0, 0.0]


VERDICT = "<content_score>0.5</content_score> <format_score>1.0</format_score>"
TALK = [{"role": "user", "content": "My head hurts."}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [1 * (1 + 2 * 0.5) + 1, 0.0]),
        ({"fusion_mode": "sum"}, [1 + 0.5 + 1, 0.0]),
        ({"train_mode": "Ra"}, [2 * 0.5 + 1, 0.0]),
        ({"train_mode": "Rs"}, [3 * 1 + 1, 0.0]),
    ],
)
def test_a_question_is_rated_by_a_judge_and_a_wrong_decision_is_worth_nothing(
    arguments, expected
) -> None:
    workflow, experiences = run(
        "learn2ask_workflow",
        "Since when?",
        "<stop />",
        judge=[VERDICT],
        repeat_times=2,
        raw_task={"question": TALK, "decision_truth": "continue", "info_truth": "since when"},
        workflow_args=arguments,
    )

    assert rewards(experiences) == expected
    asked = workflow.judge._engine.exchanges[0].request.prompt_token_ids
    text = workflow.judge._chat_format.decode(asked)
    assert "patient: My head hurts.\ndoctor: Since when?" in text


@pytest.mark.parametrize(
    ("verdict", "reward", "success"),
    [
        (VERDICT, 1 * (1 + 2 * 0.5) + 1, 1.0),
        ("<content_score>0.5</content_score>", 1 * (1 + 2 * 0.5) + 0, 0.0),
        ("A good question.", 1 * (1 + 2 * 0) + 0, 0.0),
    ],
)
def test_a_score_that_the_judge_does_not_say_is_0_and_a_metric_tells(
    verdict, reward, success
) -> None:
    _, (experience,) = run(
        "learn2ask_workflow", "Since when?", judge=[verdict], raw_task={"question": TALK}
    )

    assert experience.reward == reward
    assert experience.metrics["judge_success"] == success


def test_a_doctor_who_stops_in_time_needs_no_judge() -> None:
    row = {"question": TALK, "decision_truth": "stop"}
    _, experiences = run(
        "learn2ask_workflow",
        "<stop />",
        "Enough. <stop />",
        judge=["never asked"],
        repeat_times=2,
        raw_task=row,
    )

    assert rewards(experiences) == [1 * (1 + 2 * 1) + 1, 1 * (1 + 2 * 1) + 0]


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train_mode is 'R'\. Use one of: Ra\+Rs, Ra, Rs"):
        WORKFLOWS.get("learn2ask_workflow").check_arguments({"train_mode": "R"})


def test_an_answer_that_nobody_can_judge_costs_its_own_run_alone() -> None:
    answers = ["\\boxed{9^{9^{9^9}}}", RIGHT]
    _, experiences = run("math_boxed_workflow", *answers, repeat_times=2)

    assert rewards(experiences) == [None, 1.0]
    assert "cannot be said" in experiences[0].info["not_judged"]
