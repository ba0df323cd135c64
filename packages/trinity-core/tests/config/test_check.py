from __future__ import annotations

import pytest
from trinity.algorithm import ALGORITHM_TYPE
from trinity.common.config import (
    ExperienceBufferConfig,
    check,
    load_config,
    prepared_stages,
    resolve,
)
from trinity.common.config.problem import listed
from trinity.common.config.resolve import resolve_stages
from trinity.common.workflows import WORKFLOWS, Workflow
from trinity.errors import ConfigError, NotSupportedYetError


@pytest.fixture
def checked(cpu, all_algorithms, a_run):
    """Return a function that gives what is wrong with a run of these settings."""

    def run(*overrides: str, machine=cpu, path=None) -> str:
        config = resolve(load_config(path or a_run(), overrides=overrides), machine)
        return "\n".join(listed(check(config, machine)))

    return run


def test_a_configuration_that_can_be_run_has_no_problems(checked) -> None:
    assert checked() == ""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("config_misspelt_component", ["algorithm.policy_loss_fn=pppo"]),
        ("config_misspelt_argument", ["algorithm.policy_loss_fn_args.clip_rage=0.3"]),
        ("config_argument_of_wrong_type", ["algorithm.policy_loss_fn_args.clip_range=wide"]),
        ("config_argument_of_wrong_word", ["algorithm.advantage_fn_args.std_cal_level=grup"]),
        ("config_group_of_one", ["algorithm.repeat_times=1"]),
        ("config_batch_cannot_be_cut", ["trainer.max_token_len_per_gpu=16"]),
        (
            "config_rows_longer_than_the_model",
            ["model.max_response_tokens=60", "model.max_prompt_tokens=60"],
        ),
        ("config_missing_model", ["model.model_path=./no/such/model"]),
        ("config_missing_dataset", ["buffer.explorer_input.taskset.path=./no/such.jsonl"]),
        (
            "config_feature_to_come",
            [
                "explorer.runner_state_report_interval=5",
            ],
        ),
        ("config_sft_in_mode_both", ["algorithm.algorithm_type=sft"]),
        ("config_kl_penalty_of_groups", ["algorithm.kl_penalty_fn=k1"]),
        ("config_no_teacher", ["algorithm.algorithm_type=on_policy_distill"]),
        ("config_no_greedy_baseline", ["algorithm.advantage_fn=remax"]),
        ("config_no_expert", ["algorithm.algorithm_type=mix"]),
        (
            "config_standalone_in_mode_both",
            [
                "synchronizer.standalone=true",
                "buffer.trainer_input.experience_buffer={storage_type: sql}",
            ],
        ),
        (
            "config_standalone_without_a_ledger",
            ["mode=train", "buffer.train_batch_size=4", "synchronizer.standalone=true"],
        ),
    ],
)
def test_bad_input_gets_one_clear_message(
    checked, golden, tmp_path, monkeypatch, name, settings
) -> None:
    monkeypatch.chdir(tmp_path)

    golden(checked(*settings), name, TMP=tmp_path)


def test_an_algorithm_of_another_distribution_names_its_install_line(
    cpu, builtin_only, a_run
) -> None:
    run = load_config(a_run(), overrides=["algorithm.algorithm_type=gspo"])

    assert listed(check(resolve(run, cpu), cpu))[0].endswith(
        "Run: python -m pip install trinity-algorithms (in a clone: -e plugins/trinity-algorithms)"
    )


def test_a_workflow_of_the_user_may_ask_a_teacher(checked) -> None:
    class AsksATeacher(Workflow):
        def run(self):
            return []

    WORKFLOWS.register_module("asks_a_teacher")(AsksATeacher)
    taskset = "buffer.explorer_input.taskset.default_workflow_type=asks_a_teacher"

    assert checked("algorithm.algorithm_type=jsd", taskset) == ""


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "policy_loss_fn_args={clip_ratio_c: 0.5}",
            "algorithm.policy_loss_fn_args: clip_ratio_c is 0.5; it must be above 1.",
        ),
        (
            "kl_loss_fn_args={adaptive: true}",
            "algorithm.kl_loss_fn_args: adaptive needs target_kl and horizon.",
        ),
        (
            "policy_loss_fn_args={loss_agg_mode: token-men}",
            "algorithm.policy_loss_fn_args.loss_agg_mode: should be 'token-mean'",
        ),
    ],
)
def test_what_a_part_says_against_its_arguments_is_said_before_the_run(
    checked, setting, message
) -> None:
    assert message in checked(f"algorithm.{setting}")


@pytest.mark.parametrize("name", ["grpo_verl", "rloo"])
def test_a_group_of_one_is_refused_in_the_trainer_too(checked, name) -> None:
    settings = (f"algorithm.advantage_fn={name}", "algorithm.repeat_times=1")

    assert f"advantage_fn {name} compares the rollouts of a task" in checked(*settings)


def test_a_plain_reward_needs_no_group(checked) -> None:
    settings = ("algorithm.advantage_fn=reinforce", "algorithm.repeat_times=1")

    assert "compares the runs" not in checked(*settings)


def test_a_folder_that_is_no_model_is_named(checked, golden, tmp_path) -> None:
    (tmp_path / "empty").mkdir()

    text = checked(f"model.model_path={tmp_path / 'empty'}")

    golden(text, "config_folder_is_no_model", TMP=tmp_path)


def test_an_empty_dataset_is_named(checked, golden, tmp_path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")

    text = checked(f"buffer.explorer_input.taskset.path={tmp_path / 'empty.jsonl'}")

    golden(text, "config_empty_dataset", TMP=tmp_path)


def test_a_model_and_a_dataset_may_be_ids_of_the_hub(cpu, builtin_only, a_run) -> None:
    settings = ["model.model_path=org/model", "buffer.explorer_input.taskset.path=org/rows"]
    config = resolve(load_config(a_run(), overrides=settings), cpu)

    found = check(config, cpu)

    assert {problem.severity for problem in found} == {"notice"}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("./modls", "Did you mean 'models'?"),
        ("modls/tiny/v1", "Did you mean 'models'?"),
        ("models/tniy", "Did you mean 'tiny'? Give a folder"),
        ("models/other", "For an id, first run: hf download models/other."),
        ("runs/global_step_8", "For an id, first run: hf download runs/global_step_8."),
    ],
)
def test_a_model_whose_name_looks_like_a_path_is_refused_with_the_nearest_name(
    checked, tmp_path, monkeypatch, path, hint
) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    said = checked(f"model.model_path={path}")

    assert f"model.model_path: there is no folder {path!r} in {tmp_path}." in said
    assert hint in said


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["mode=bench"], "eval_tasksets: is missing: mode bench has no tasks."),
        (["mode=train"], "storage_type: is queue, but in mode train nothing writes"),
        (["model.model_path=''"], "model.model_path: is empty"),
        (["model.model_path=café"], "there is no folder 'café'"),
        (["model.model_path=my--model"], "there is no folder 'my--model'"),
        (["model.chat_template_path=t.jinja"], "chat_template_path: there is no file 't.jinja' in"),
        (["buffer.explorer_input.taskset.default_workflow_type=null"], "nothing says which"),
        (["buffer.explorer_input.taskset.path=null"], "nothing says where the rows are"),
        (["buffer.explorer_input.taskset.data_selector.kwargs.x=1"], "has no argument 'x'"),
        (
            ["buffer.explorer_input.taskset.rollout_args.max_tokens=60"],
            "is 60, but model.max_response_tokens",
        ),
        (["buffer.explorer_input.taskset.storage_type=sql"], "'sql' is not supported yet"),
        (["monitor.monitor_type=jsonll"], "no monitor named 'jsonll'. Did you mean 'jsonl'?"),
        (["synchronizer.trainer_sync_interval=3"], "both sides sync every 1 steps"),
        (["algorithm.optimizer.optimizer_type=lion"], "'lion' is not supported yet"),
        (["data_processor.experience_pipeline.operators=[{name: nothing}]"], "'nothing'"),
        (["plugins.require=['no-such-plugin>=1']"], "no-such-plugin"),
        (
            ["model.external_model.enable=true"],
            "enable: a model behind an external API cannot be trained. Use mode bench",
        ),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(checked, settings, expected) -> None:
    assert expected in checked(*settings)


@pytest.mark.parametrize(
    "setting",
    [
        "algorithm.rollout_correction=off",
        "algorithm.algorithm_type=ppo",
        "trainer.prefix_sharing=off",
        "buffer.explorer_input.taskset.rollout_args.logprobs=0",
        "model.lora_configs=[]",
        "synchronizer.explorer_sync_interval=1",
    ],
)
def test_a_feature_to_come_may_be_given_at_its_default(checked, setting) -> None:
    assert checked(setting) == ""


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ([], True),
        (["buffer.explorer_input.default_reward_fn_type=math_reward"], False),
        (["buffer.explorer_input.taskset.format.reward_fn_key=reward"], False),
    ],
)
def test_a_workflow_without_a_reward_needs_a_reward_function(checked, settings, is_refused) -> None:
    workflow = "buffer.explorer_input.taskset.default_workflow_type=simple_workflow"

    text = checked(workflow, *settings)

    expected = "taskset.default_reward_fn_type: is missing: simple_workflow has no reward function"
    assert (expected in text) == is_refused


def test_the_losses_are_not_asked_where_nothing_is_trained(checked) -> None:
    assert checked("mode=explore", "algorithm.kl_loss_fn=k2") == ""


def test_an_engine_of_one_gpu_cannot_spread_over_two(checked, gpus) -> None:
    text = checked("explorer.rollout_model.tensor_parallel_size=2", machine=gpus)

    assert "explorer.rollout_model.tensor_parallel_size: is 2, but the rollout engine " in text
    assert "(it does not provide 'tensor_parallel')" in text


def test_replies_are_kept_only_by_an_engine_that_can(checked) -> None:
    assert checked("synchronizer.in_flight=keep") == ""

    plain = "explorer.rollout_model.engine_type=trinity_testing.engines:ScriptedEngine"
    text = checked("synchronizer.in_flight=keep", plain)
    assert "synchronizer.in_flight: is keep, but the rollout engine " in text
    assert "(it does not provide 'in_flight')" in text


def test_too_few_gpus_are_an_error(checked, gpus) -> None:
    text = checked("cluster.gpu_per_node=16", "explorer.rollout_model.engine_num=32", machine=gpus)

    assert "cluster.gpu_per_node: is 16, but this machine has 8 GPUs." in text
    assert "32 engines x 1 GPUs need 32 GPUs; there are 16." in text


def test_a_problem_of_a_stage_is_told_with_its_place_in_the_file(cpu, builtin_only, a_run) -> None:
    path = a_run("stages: [{stage_name: a, algorithm: {algorithm_type: gropo}}]")

    with pytest.raises(ConfigError) as caught:
        prepared_stages(load_config(path))

    assert f"{path}:11: stages.0.algorithm.algorithm_type: no algorithm named 'gropo'" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("where", "severity"), [("trainer", "notice"), ("stages.0.trainer", "error")]
)
def test_keep_best_of_all_stages_may_find_no_evaluation_in_one(
    cpu, builtin_only, a_run, where, severity
) -> None:
    path = a_run("stages: [{stage_name: a}]")
    config = load_config(path, overrides=[f"{where}.keep_best.num=1"])
    [stage] = resolve_stages(config, cpu)
    stage.buffer.explorer_input.eval_tasksets = []

    [problem] = [one for one in check(stage, cpu) if "keep_best" in one.path]

    assert problem.severity == severity
    assert f"follows evaluations, and {stage.name} makes none" in str(problem)


def test_check_and_update_returns_the_resolved_configuration(builtin_only, a_run) -> None:
    config = load_config(a_run()).check_and_update()

    assert config.buffer.train_batch_size == 8  # 2 tasks x 4 runs
    assert config.model.max_prompt_tokens == 32


def test_check_and_update_lists_everything_at_once(builtin_only, a_run) -> None:
    config = load_config(a_run())
    config.algorithm.advantage_fn = "gropo"
    config.model.model_path = ""

    with pytest.raises(ConfigError, match="2 problems") as caught:
        config.check_and_update()

    assert not isinstance(caught.value, NotSupportedYetError)


def test_an_error_of_features_to_come_only_has_a_type_of_its_own(builtin_only, a_run) -> None:
    config = load_config(a_run())
    config.explorer.runner_state_report_interval = 5

    with pytest.raises(NotSupportedYetError, match="1 problem"):
        config.check_and_update()


def test_a_queue_that_cannot_hold_the_steps_before_a_sync_is_refused(builtin_only, a_run) -> None:
    config = load_config(a_run())
    config.synchronizer.sync_interval, config.synchronizer.sync_offset = 2, 1
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(capacity=2)

    with pytest.raises(ConfigError, match="is 2 batches, but the explorer runs 3 steps") as caught:
        config.check_and_update()

    assert "Use 3 or more." in str(caught.value)


def test_a_chat_template_of_a_task_set_is_refused_as_nothing_would_read_it(a_run) -> None:
    config = load_config(a_run())
    config.buffer.explorer_input.taskset.format.chat_template = "{{ messages }}"

    with pytest.raises(NotSupportedYetError, match=r"Set model\.custom_chat_template"):
        config.check_and_update()


def test_a_kl_term_is_refused_where_the_algorithm_uses_no_reference_model(a_run) -> None:
    class Free:
        """An algorithm without a reference model."""

        @staticmethod
        def setting(name):
            return {"use_reference": False, "use_advantage": True, "schema": "experience"}[name]

        @staticmethod
        def default_config():
            return {"advantage_fn": "grpo", "repeat_times": 4}

    ALGORITHM_TYPE.register_module("free_of_reference")(Free)
    config = load_config(a_run())
    config.algorithm.algorithm_type = "free_of_reference"

    assert config.check_and_update().algorithm.kl_loss_fn == "none"

    config.algorithm.kl_loss_fn = "k2"
    with pytest.raises(ConfigError, match="k2 needs 'ref_logprob', which no component of the run"):
        config.check_and_update()


@pytest.mark.parametrize(("key", "value"), [("name", "/elsewhere"), ("project", "../up")])
def test_a_name_that_leads_out_of_the_run_directories_is_refused(a_run, key, value) -> None:
    config = load_config(a_run())
    setattr(config, key, value)

    with pytest.raises(ConfigError, match=rf"{key}: '{value}' leads out of checkpoint_root_dir"):
        config.check_and_update()


@pytest.mark.parametrize(
    ("algorithm", "row", "expected"),
    [
        ("dpo", '{"prompt": "p", "chosen": "a"}', "row 2, has no key 'rejected', which format.rej"),
        ("dpo", '{"prompt": "p", "chosen": "a", "rejected": "b"}', ""),
        ("sft", '{"messages": []}', "row 2, has no key 'message'"),
        ("sft", '{"prompt": "p", "response": "r"}', ""),
        ("sft", '{"tokens": [1, 2], "prompt_length": 1}', ""),
        ("cpt", '{"text": "t"}', "row 2, has no key 'prompt'"),
        ("cpt", '{"message": []}', ""),
    ],
)
def test_the_first_row_of_a_file_is_looked_at(checked, tmp_path, algorithm, row, expected) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(f"\n{row}\n")
    buffer = "buffer.trainer_input.experience_buffer"

    text = checked(
        "mode=train",
        f"algorithm.algorithm_type={algorithm}",
        "buffer.train_batch_size=4",
        f"{buffer}.storage_type=file",
        f"{buffer}.path={path}",
    )

    assert expected in text
    assert bool(text) is bool(expected)


def test_an_experts_buffer_must_be_a_file_and_of_the_name_that_the_strategy_asks_for(
    checked, tmp_path
) -> None:
    path = tmp_path / "expert.jsonl"
    path.write_text('{"prompt": "p", "response": "r"}\n')
    buffers = "buffer.trainer_input.auxiliary_buffers"
    mix, of_file = "algorithm.algorithm_type=mix", f"storage_type: file, path: {path}"

    assert checked(mix, f"{buffers}={{sft_dataset: {{{of_file}}}}}") == ""
    assert "auxiliary_buffers does not have. It has: other." in checked(
        mix, f"{buffers}={{other: {{{of_file}}}}}"
    )
    assert "sft_dataset.storage_type: is queue, but nothing writes" in checked(
        mix, f"{buffers}={{sft_dataset: {{}}}}"
    )
    assert "sft_dataset.path: is missing" in checked(
        mix, f"{buffers}={{sft_dataset: {{storage_type: file}}}}"
    )


def test_the_critic_is_set_where_published_files_set_it(cpu, builtin_only, a_run) -> None:
    published = "trainer.trainer_config.critic={optim: {lr: 3e-5, x: 1}, cliprange_value: 0.2}"
    settings = ["algorithm.algorithm_type=ppo", published, "trainer.critic.grad_clip=2"]

    critic = resolve(load_config(a_run(), overrides=settings), cpu).trainer.critic

    assert (critic.optimizer.lr, critic.cliprange_value, critic.grad_clip) == (3e-5, 0.2, 2)


@pytest.mark.parametrize(("algorithm", "is_noted"), [("ppo", False), ("grpo", True)])
def test_what_only_a_critic_reads_is_noted_where_there_is_none(
    cpu, builtin_only, a_run, algorithm, is_noted
) -> None:
    settings = [f"algorithm.algorithm_type={algorithm}", "trainer.critic_warmup=3"]

    notes = resolve(load_config(a_run(), overrides=settings), cpu).notes

    assert (
        any("algorithms with a critic: trainer.critic_warmup" in note for note in notes) is is_noted
    )
