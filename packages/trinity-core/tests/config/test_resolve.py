from __future__ import annotations

from dataclasses import replace

import pytest
from trinity.common.config import Config, Machine, load_config, resolve, resolve_stages
from trinity.extend import ComponentSpec, get_manager


def resolved(path, machine, *overrides: str):
    return resolve(load_config(path, overrides=overrides), machine)


def test_resolving_does_not_change_what_it_is_given(a_run, cpu) -> None:
    config = load_config(a_run())
    before = config.model_dump()

    resolve(config, cpu)

    assert config.model_dump() == before


def test_a_resolved_configuration_resolves_to_itself(a_run, cpu) -> None:
    once = resolved(a_run(), cpu)

    again = resolve(once, cpu)

    assert again.flat() == once.flat()


def test_a_resolved_configuration_follows_a_later_change(a_run, cpu) -> None:
    config = resolved(a_run(), cpu)  # 2 tasks x 4 runs

    config.buffer.batch_size = 3

    assert resolve(config, cpu).buffer.train_batch_size == 12


def test_the_file_wins_over_the_algorithm_and_the_algorithm_over_the_part(a_run, cpu) -> None:
    config = resolved(a_run(), cpu)

    assert config.algorithm.repeat_times == 4  # the algorithm says 2
    assert config.algorithm.kl_loss_fn == "k2"
    assert config.algorithm.policy_loss_fn_args["clip_range"] == 0.2
    assert config.origins["algorithm.kl_loss_fn"] == "algorithm grpo"
    assert config.origins["algorithm.policy_loss_fn_args.clip_range"] == "policy_loss_fn ppo"
    assert config.origins["algorithm.repeat_times"].endswith("run.yaml:3")


def test_how_long_a_file_is_read_is_the_length_of_mode_train_and_read_by_no_other(
    a_run, cpu
) -> None:
    where = "buffer.trainer_input.experience_buffer"
    asked = [f"{where}.total_epochs=3", f"{where}.total_steps=7", "buffer.total_steps=9"]
    store = f"{where}.storage_type=file"

    train = resolved(a_run(), cpu, "mode=train", store, f"{where}.path=rows.jsonl", *asked)
    both = resolved(a_run(), cpu, *asked)

    assert (train.buffer.total_epochs, train.buffer.total_steps) == (3, 7)
    assert train.origins["buffer.total_epochs"] == f"{where}.total_epochs"
    assert f"requested buffer.total_steps 9, using {where}.total_steps: 7" in train.notes
    assert "not used in this run" not in " ".join(train.notes)
    assert (both.buffer.total_epochs, both.buffer.total_steps) == (1, 9)
    unused = (
        f"read only by experience_buffer in mode train: {where}.total_epochs, {where}.total_steps"
    )
    assert f"not used in this run, {unused}" in both.notes


def test_the_command_line_wins_over_the_file(a_run, cpu) -> None:
    config = resolved(a_run(), cpu, "algorithm.repeat_times=8")

    assert config.algorithm.repeat_times == 8
    assert config.origins["algorithm.repeat_times"] == "command line"


def test_arguments_merge_with_those_that_the_part_has_by_itself(a_run, cpu) -> None:
    config = resolved(a_run(), cpu, "algorithm.policy_loss_fn_args.clip_range=0.3")

    args = config.algorithm.policy_loss_fn_args
    assert args["clip_range"] == 0.3
    assert args["clip_ratio_c"] == 3.0
    assert config.origins["algorithm.policy_loss_fn_args.clip_range"] == "command line"
    assert config.origins["algorithm.policy_loss_fn_args.clip_ratio_c"] == "policy_loss_fn ppo"


def test_of_two_loss_agg_modes_the_nearer_wins(a_run, cpu) -> None:
    shared = resolved(a_run(), cpu, "algorithm.loss_agg_mode=seq-mean-token-mean")
    both = resolved(
        a_run(),
        cpu,
        "algorithm.loss_agg_mode=seq-mean-token-mean",
        "algorithm.policy_loss_fn_args.loss_agg_mode=token-mean",
    )

    assert shared.algorithm.policy_loss_fn_args["loss_agg_mode"] == "seq-mean-token-mean"
    assert both.algorithm.policy_loss_fn_args["loss_agg_mode"] == "token-mean"


def test_of_two_gradient_limits_the_optimizers_wins(a_run, cpu) -> None:
    config = resolved(a_run(), cpu, "algorithm.optimizer.clip_grad=0.5", "trainer.grad_clip=2")

    assert config.trainer.grad_clip == 0.5
    assert config.algorithm.optimizer.clip_grad == 0.5


def test_a_part_that_replaces_the_algorithms_keeps_its_own_arguments(a_run, cpu) -> None:
    config = resolved(a_run(), cpu, "algorithm.kl_loss_fn=none")

    assert config.origins["algorithm.kl_loss_fn_args.kl_coef"] == "kl_fn none"


@pytest.mark.parametrize(
    ("settings", "length", "prompt", "response"),
    [
        (["model.max_model_len=100"], 100, 50, 50),
        (["model.max_model_len=101"], 101, 51, 50),
        (["model.max_model_len=100", "model.max_response_tokens=30"], 100, 70, 30),
        (["model.max_model_len=100", "model.max_prompt_tokens=30"], 100, 30, 70),
        (["model.max_prompt_tokens=30", "model.max_response_tokens=50"], 80, 30, 50),
        (
            [
                "model.max_model_len=100",
                "model.max_response_tokens=100",
                "explorer.rollout_model.max_prompt_tokens=40",
            ],
            *(100, 1, 99),
        ),
        ([], 512, 256, 256),  # the machine knows the model
    ],
)
def test_lengths_follow_from_each_other(a_file, cpu, settings, length, prompt, response) -> None:
    config = resolved(a_file("mode: both"), replace(cpu, model_max_len=512), *settings)

    model = config.model
    found = (model.max_model_len, model.max_prompt_tokens, model.max_response_tokens)
    assert found == (length, prompt, response)
    assert config.trainer.max_token_len_per_gpu == 4096  # the floor: 2 x length is less
    assert config.explorer.rollout_model.max_model_len == length


def test_a_model_that_nobody_knows_gets_2048_tokens(a_file, cpu) -> None:
    assert resolved(a_file("mode: both"), cpu).model.max_model_len == 2048


def test_that_the_length_of_a_model_is_not_known_is_noted(a_file, cpu) -> None:
    noted, asked, known = (
        resolved(a_file("mode: both"), machine, "model.model_path=some/model", *settings)
        for machine, settings in (
            (cpu, []),
            (cpu, ["model.max_model_len=2048"]),
            (replace(cpu, model_max_len=512), []),
        )
    )
    said = "model.max_model_len is 2048: the limit of some/model (max_position_embeddings in its "

    assert any(note.startswith(said) for note in noted.notes)
    assert not any("max_position_embeddings" in note for note in (*asked.notes, *known.notes))


def test_generation_settings_go_from_the_model_to_the_tasks(a_run, cpu) -> None:
    config = resolved(
        a_run("""
        seed: 7
        """),
        cpu,
        "model.temperature=0.7",
        "model.top_k=20",
        "buffer.explorer_input.taskset.rollout_args.top_p=0.9",
    )

    args = config.buffer.explorer_input.tasksets[0].rollout_args
    assert (args.temperature, args.top_p, args.top_k) == (0.7, 0.9, 20)
    assert (args.max_tokens, args.logprobs, args.n) == (32, 0, 1)
    assert config.buffer.explorer_input.tasksets[0].data_selector.seed == 7
    assert config.explorer.rollout_model.seed == 7


def test_the_taskset_becomes_the_first_of_tasksets_and_keeps_its_place_in_the_file(
    a_run, cpu
) -> None:
    config = resolved(a_run(), cpu, "buffer.explorer_input.tasksets=[{name: second, path: y}]")

    assert config.buffer.explorer_input.taskset is None
    assert [t.name for t in config.buffer.explorer_input.tasksets] == ["taskset_0", "second"]
    place = config.source.place("buffer.explorer_input.tasksets.0.path")
    assert place.startswith("buffer.explorer_input.taskset.path (")
    written = config.source.written("buffer.explorer_input.tasksets.1.path")
    assert written == "buffer.explorer_input.tasksets.0.path"


def test_evaluation_sets_take_their_own_default_workflow(a_run, cpu) -> None:
    config = resolved(
        a_run(),
        cpu,
        "buffer.explorer_input.default_eval_workflow_type=simple_workflow",
        "buffer.explorer_input.default_reward_fn_type=math_reward",
        "buffer.explorer_input.eval_tasksets=[{path: y, repeat_times: 3}]",
    )

    (evaluation,) = config.buffer.explorer_input.eval_tasksets
    (training,) = config.buffer.explorer_input.tasksets
    assert evaluation.default_workflow_type == "simple_workflow"
    assert evaluation.default_reward_fn_type == "math_reward"
    assert (evaluation.name, evaluation.repeat_times) == ("eval_taskset_0", 3)
    assert (training.default_workflow_type, training.repeat_times) == ("math_workflow", 4)


def test_engines_that_are_asked_for_without_gpus_run_on_processors(a_run, cpu) -> None:
    config = resolved(a_run("explorer: {rollout_model: {engine_num: 2}}"), cpu)

    assert config.explorer.rollout_model.engine_num == 2
    assert not any("engine" in note for note in config.notes)


def test_a_laptop_gets_one_embedded_engine_and_says_so(a_run, cpu) -> None:
    config = resolved(
        a_run("""
        cluster: {node_num: 2, gpu_per_node: 8}
        explorer: {rollout_model: {engine_num: 4, tensor_parallel_size: 2, dtype: bfloat16}}
        synchronizer: {sync_method: nccl}
        """),
        cpu,
    )

    rollout = config.explorer.rollout_model
    assert (rollout.engine_type, rollout.engine_num, rollout.dtype) == (
        "transformers",
        1,
        "float32",
    )
    assert (rollout.tensor_parallel_size, config.cluster.gpu_per_node) == (1, 0)
    assert config.synchronizer.sync_method == "memory"
    assert config.notes == [
        "requested GPUs (cluster.gpu_per_node, explorer.rollout_model.engine_num, "
        "explorer.rollout_model.tensor_parallel_size), found none, using one embedded engine and "
        "one trainer on the CPU",
        "requested explorer.rollout_model.dtype bfloat16, slow or not supported on this machine, "
        "using float32",
        "requested synchronizer.sync_method nccl, found no GPU, using memory",
    ]


class WithAWideEngine:
    """All plugins, and an engine "wide" that shares its tensors among processes."""

    def __init__(self, inner) -> None:
        self._inner = inner

    def find(self, kind, name):
        if name != "wide":
            return self._inner.find(kind, name)
        found = self._inner.find(kind, "transformers")
        spec = ComponentSpec("somewhere:Engine", provides=frozenset({"tensor_parallel"}))
        return replace(found, name="wide", spec=spec)

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_an_engine_that_shares_its_tensors_among_processes_does_so_without_gpus(a_run, cpu) -> None:
    asked = "explorer: {rollout_model: {engine_type: wide, engine_num: 2, tensor_parallel_size: 2}}"
    manager = WithAWideEngine(get_manager())

    config = resolve(load_config(a_run(asked)), cpu, manager=manager)

    rollout = config.explorer.rollout_model
    assert (rollout.engine_type, rollout.engine_num, rollout.tensor_parallel_size) == ("wide", 2, 2)
    assert config.notes == []

    for_gpus = load_config(a_run(f"cluster: {{gpu_per_node: 8}}\n{asked}"))
    config = resolve(for_gpus, cpu, manager=manager)

    rollout = config.explorer.rollout_model
    assert (rollout.engine_type, rollout.engine_num, rollout.tensor_parallel_size) == ("wide", 1, 1)
    assert config.notes == [
        "requested GPUs (cluster.gpu_per_node, explorer.rollout_model.engine_num, "
        "explorer.rollout_model.tensor_parallel_size), found none, using one engine and one "
        "trainer on the CPU"
    ]


def test_the_note_counts_the_engines_and_processes_that_are_kept(a_run, cpu) -> None:
    engines = "engine_type: wide, engine_num: 2, tensor_parallel_size: 4"
    asked = f"cluster: {{node_num: 2}}\nexplorer: {{rollout_model: {{{engines}}}}}"

    config = resolve(load_config(a_run(asked)), cpu, manager=WithAWideEngine(get_manager()))

    assert config.notes == [
        "requested GPUs (cluster.node_num), found none, using 2 engines of 4 processes each and "
        "one trainer on the CPU"
    ]


def test_what_was_not_asked_is_not_noted(a_run, cpu) -> None:
    assert resolved(a_run(), cpu).notes == []


def test_bfloat16_stays_where_the_cpu_has_it(a_run) -> None:
    config = resolved(a_run(), Machine(has_bf16=True), "explorer.rollout_model.dtype=bfloat16")

    assert config.explorer.rollout_model.dtype == "bfloat16"


def test_the_engine_follows_the_trainers_precision(a_run) -> None:
    config = resolved(a_run(), Machine(has_bf16=True), "trainer.precision=bfloat16")

    assert config.explorer.rollout_model.dtype == "bfloat16"


def test_an_engine_that_declares_itself_for_gpus_is_used_where_there_are_some(
    a_run, cpu, gpus
) -> None:
    class ManagerWithAGPUEngine:
        def __init__(self, inner) -> None:
            self._inner = inner

        def components(self, kind=None):
            given = self._inner.components(kind)
            found = [one for one in given if one.spec.default_for != "gpu"]  # of no plugin here
            spec = ComponentSpec("somewhere:Engine", default_for="gpu")
            return [*found, replace(found[0], name="fast", spec=spec)]

        def __getattr__(self, name):
            return getattr(self._inner, name)

    from trinity.extend import get_manager

    config, manager = load_config(a_run()), ManagerWithAGPUEngine(get_manager())

    with_gpus = resolve(config, gpus, manager=manager)
    without = resolve(config, cpu, manager=manager)
    assert with_gpus.explorer.rollout_model.engine_type == "fast"
    assert without.explorer.rollout_model.engine_type == "transformers"


def test_the_published_trainer_means_our_own_and_is_noted_when_asked(a_run, cpu) -> None:
    config = resolved(a_run(), cpu, "trainer.trainer_type=verl")

    assert config.trainer.trainer_type == "torch"
    assert config.notes == [
        "requested trainer.trainer_type verl, using Trinity's own trainer torch"
    ]


def test_the_address_of_ray_is_not_called_unused_and_what_nobody_reads_is(a_run, cpu) -> None:
    config = resolved(
        a_run(),
        cpu,
        "cluster.ray_address=10.0.0.1:6379",
        "ray_namespace=mine",
        "log.group_by_node=true",
        "monitor.enable_ray_timeline=true",
        "explorer.runner_prepare_concurrency=2",
        "explorer.runner_prepare_max_retries=5",
    )

    assert config.notes == [
        "not used in this run, read only by older versions: ray_namespace, "
        "explorer.runner_prepare_concurrency, explorer.runner_prepare_max_retries, "
        "monitor.enable_ray_timeline, log.group_by_node",
        "read only by runs on Ray: cluster.ray_address",
    ]


def test_what_only_other_parts_read_is_listed_once_as_not_used(a_run, cpu) -> None:
    config = resolved(
        a_run(),
        cpu,
        "explorer.rollout_model.gpu_memory_utilization=0.7",
        "explorer.rollout_model.enforce_eager=true",
        "explorer.rollout_model.extra_engine_args={num_threads: 2, swap_space: 4}",
        "trainer.trainer_config={actor: {lr: 1}}",
        "trainer.use_dynamic_bsz=true",
        "buffer.trainer_input.experience_buffer.replay_buffer={enable: false, priority_fn: x}",
    )

    switch = "buffer.trainer_input.experience_buffer.replay_buffer.enable"
    assert config.notes == [
        f"not used in this run, read only by runs with {switch}: "
        "buffer.trainer_input.experience_buffer.replay_buffer.priority_fn",
        "not used in this run, read only by an engine whose constructor names swap_space: "
        "explorer.rollout_model.extra_engine_args",
        "not used in this run, read only by engines whose constructor names it: "
        "explorer.rollout_model.enforce_eager, explorer.rollout_model.gpu_memory_utilization",
        "not used in this run, read only by other trainers: trainer.trainer_config",
    ]


def test_a_stages_sections_replace_the_global_ones_whole(a_run, cpu, some_tasks) -> None:
    path = a_run(f"""
    trainer: {{save_interval: 5, grad_clip: 0.5}}
    stages:
      - stage_name: sft
        mode: train
        algorithm: {{algorithm_type: sft}}
        buffer:
          train_batch_size: 8
          total_epochs: 3
          trainer_input:
            experience_buffer: {{storage_type: file, path: {some_tasks}}}
        trainer: {{save_interval: 7}}
      - stage_name: grpo
    """)

    first, second = resolve_stages(load_config(path), cpu)

    assert (first.name, first.mode, first.stages) == ("rft/sft", "train", [])
    assert (first.trainer.save_interval, first.trainer.grad_clip) == (7, 1.0)
    assert first.algorithm.policy_loss_fn == "sft"
    assert first.algorithm.advantage_fn is None
    buffer = first.buffer.trainer_input.experience_buffer
    assert (buffer.schema_type, buffer.total_epochs) == ("sft", 3)
    assert (second.name, second.mode, second.trainer.save_interval) == ("rft/grpo", "both", 5)
    assert second.buffer.trainer_input.experience_buffer.schema_type == "experience"
    assert first.origins["trainer.save_interval"] == f"{path}:22"
    assert first.source.written("algorithm.algorithm_type") == "stages.0.algorithm.algorithm_type"


def test_live_objects_of_python_are_kept_as_they_are(cpu) -> None:
    class Judge:
        def __deepcopy__(self, memo):
            raise TypeError("a live object")

    judge = Judge()
    config = Config()
    config.buffer.explorer_input.tasksets = [{"path": "x", "workflow_args": {"judge": judge}}]

    taskset = resolve(config, cpu).buffer.explorer_input.tasksets[0]

    assert taskset.workflow_args["judge"] is judge


def test_a_value_set_in_python_has_python_as_its_origin(cpu) -> None:
    config = Config()
    config.buffer.batch_size = 4

    resolved_config = resolve(config, cpu)

    assert resolved_config.origins["buffer.batch_size"] == "Python"
    assert resolved_config.origins["buffer.total_epochs"] == "default"


def test_every_value_has_an_origin(a_run, cpu) -> None:
    config = resolved(a_run(), cpu)

    assert set(config.origins) == set(config.flat())


def test_long_sequences_get_twice_their_length_as_the_trainers_budget(a_file, cpu) -> None:
    config = resolved(a_file("mode: both"), cpu, "model.max_model_len=8192")

    assert config.trainer.max_token_len_per_gpu == 16384
