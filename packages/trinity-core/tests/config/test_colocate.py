"""`mode: colocate`: engines and trainer on the same GPUs in turns, and what does not go with it."""

from __future__ import annotations

from textwrap import dedent

import pytest
from trinity.common.config import Machine, check, load_config, resolve
from trinity.common.config.memory import known_shape, usable
from trinity.common.config.parts import NamedParts
from trinity.common.config.preparation import in_one_process
from trinity.common.config.resolve_gpus import trainer_memory
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ConfigError, ModelError
from trinity.extend import PluginManager, get_manager, set_manager
from trinity.runtime.determinism import may_overlap
from trinity.runtime.ray.gpu_allocation import GpuShares, Host, gpu_shares

GB = 10**9
ROLLOUT = "explorer.rollout_model"
SLEEPS = f"{ROLLOUT}.enable_sleep_mode"
PLUGIN = """
    from trinity.common.ports import RolloutEngine
    from trinity.extend import ComponentSpec, hookimpl


    class Sleepy(RolloutEngine):
        def __init__(self, *, model_path, gpu_memory_utilization=0.9): ...
        def submit(self, request): ...
        def load_weights(self, snapshot): ...
        def sleep(self, level): ...
        def wake_up(self, tags=None): ...


    @hookimpl
    def trinity_rollout_engines():
        return {"sleepy": ComponentSpec(f"{__name__}:Sleepy", default_for="gpu")}
"""


@pytest.fixture(autouse=True)
def sleepy(tmp_path):
    """Let there be an engine for GPUs that sleeps."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "sleepy.py").write_text(dedent(PLUGIN))
    before = set_manager(PluginManager.discover(env={}, plugin_dirs=[str(folder)]))
    yield
    set_manager(before)


@pytest.fixture
def resolved(a_run):
    """Return a function that resolves a colocated run for a machine."""

    def make(machine, *settings, mode="colocate"):
        lengths = ("model.max_prompt_tokens=1024", "model.max_response_tokens=4096")
        overrides = (f"mode={mode}", "model.max_model_len=5120", *lengths, *settings)
        return resolve(load_config(a_run(), overrides=overrides), machine)

    return make


def eight(model="Qwen/Qwen2.5-7B-Instruct"):
    return Machine(num_gpus=8, has_bf16=True, gpu_bytes=80 * GB, model=known_shape(model))


def errors(config, machine):
    return [str(one) for one in check(config, machine) if one.severity == "error"]


def test_all_gpus_are_the_engines_and_the_trainers_in_turns(resolved) -> None:
    machine = eight()

    config = resolved(machine)

    assert (config.mode, config.is_colocated) == ("both", True)
    assert config.origins["mode"] == "mode colocate"
    assert config.explorer.rollout_model.engine_num == 8
    assert config.synchronizer.sync_method == "ipc"
    plan = trainer_memory(config, machine, NamedParts(None))
    assert plan.num_ranks == 8
    assert not may_overlap(config, get_manager())
    assert errors(config, machine) == []


def test_an_engine_gets_what_the_trainer_leaves_at_rest_and_a_step_all_of_the_gpu(resolved) -> None:
    machine = eight()
    config = resolved(machine)

    plan = trainer_memory(config, machine, NamedParts(None))

    left = usable(80 * GB) - plan.at_rest
    share = config.explorer.rollout_model.gpu_memory_utilization
    assert share == pytest.approx(left / (80 * GB), abs=0.006)
    apart = resolved(machine, mode="both")
    assert apart.explorer.rollout_model.engine_num == 4
    assert plan.peak(config.trainer.max_token_len_per_gpu) <= usable(80 * GB)


def test_over_ray_an_engine_and_a_rank_have_half_a_gpu_each_in_one_bundle(resolved) -> None:
    config = resolved(eight(), "explorer.rollout_model.engine_num=2", "trainer.num_ranks=3")

    shares, (group,) = gpu_shares(config, get_manager(), hosts=[Host(8, 8)])

    assert shares == GpuShares(trainer=0.5, engine=0.5, num_ranks=3)
    assert group.bundles == ({"GPU": 1.0},) * 3
    assert group.places == {
        "engine-0": 0, "runner-0": 0, "engine-1": 1, "runner-1": 1,
        "trainer-0": 0, "trainer-1": 1, "trainer-2": 2,
    }  # fmt: skip


def test_over_ray_a_rank_stands_on_each_gpu_though_each_has_an_engine(resolved) -> None:
    shares, (group,) = gpu_shares(resolved(eight()), get_manager(), hosts=[Host(8, 8)])

    assert shares.num_ranks == len(group.bundles) == 8
    assert len(group.places) == 3 * 8


def test_more_engines_than_the_cluster_has_gpus_are_refused(resolved) -> None:
    with pytest.raises(ConfigError, match="8 engines x 1 GPUs = 8 GPUs, but the cluster has 4"):
        gpu_shares(resolved(eight()), get_manager(), hosts=[Host(4, 4)])


def test_engines_that_are_lent_their_gpus_need_as_many_as_there_are_of_either(resolved) -> None:
    config = resolved(eight(), "explorer.rollout_model.engine_num=9")

    (said,) = errors(config, eight())

    assert "9 engines x 1 GPUs need 9 GPUs; there are 8." in said


def test_one_process_uses_one_gpu(a_run) -> None:
    settings = ("mode=colocate", "model.max_model_len=5120")
    machine = eight("Qwen/Qwen2.5-0.5B")

    config = resolve(*in_one_process(load_config(a_run(), overrides=settings), machine))

    rollout = config.explorer.rollout_model
    assert rollout.engine_num == 1
    assert 0.7 < rollout.gpu_memory_utilization < 0.9  # 0.5B: 5.9 GB at rest, of 71.8 GB


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("synchronizer.sync_style=fully_async", "synchronizer.sync_style"),
        ("synchronizer.sync_offset=1", "synchronizer.sync_offset"),
        ("synchronizer.sync_method=nccl", "synchronizer.sync_method"),
        ("explorer.auxiliary_models=[{name: judge, model_path: judge}]", "explorer.auxiliary_mod"),
        ("explorer.rollout_model.tensor_parallel_size=2", f"{ROLLOUT}.tensor_parallel_size"),
    ],
)
def test_what_would_use_a_gpu_out_of_turn_is_refused_by_its_key(resolved, setting, path) -> None:
    said = errors(resolved(eight(), setting), eight())

    found = [one for one in said if "use the same GPUs in turns (mode colocate)" in one]
    assert len(found) == 1
    assert path in found[0]
    assert "Leave it out, or use mode both without enable_sleep_mode." in found[0]


def test_an_engine_that_cannot_sleep_is_refused_where_the_mode_is_written(resolved) -> None:
    engine = "explorer.rollout_model.engine_type=transformers"

    (said,) = errors(resolved(eight(), engine), eight())

    assert "mode: engines would sleep while the trainer works, and transformers cannot" in said
    assert "Use mode both without it, or an engine that can." in said


def test_by_its_key_alone_it_is_the_key_that_is_named(resolved, cpu) -> None:
    config = resolved(cpu, f"{SLEEPS}=true", mode="both")

    (said,) = errors(config, cpu)

    assert f"{SLEEPS}: engines would sleep" in said


def test_without_a_gpu_there_is_nothing_to_share_and_the_header_says_so(resolved, cpu) -> None:
    config = resolved(cpu)

    assert (config.mode, config.is_colocated) == ("both", False)
    assert "requested mode colocate, found no GPU, using mode both" in config.notes
    assert errors(config, cpu) == []


def test_without_a_gpu_the_mode_lets_no_engine_sleep_though_its_key_asks_for_it(
    resolved, cpu
) -> None:
    config = resolved(cpu, f"{SLEEPS}=true")

    assert not config.is_colocated
    assert "requested mode colocate, found no GPU, using mode both" in config.notes
    assert errors(config, cpu) == []


def test_a_key_that_forbids_it_wins_over_the_mode_and_the_header_says_so(resolved) -> None:
    config = resolved(eight(), f"{SLEEPS}=false")

    assert not config.is_colocated
    assert config.explorer.rollout_model.engine_num == 4
    assert f"requested mode colocate, found {SLEEPS} false, using mode both" in config.notes


@pytest.mark.parametrize("mode", ["explore", "bench", "train"])
def test_where_no_trainer_takes_turns_no_engine_is_told_to_sleep_and_the_header_says_so(
    resolved, mode
) -> None:
    config = resolved(eight(), f"{SLEEPS}=true", mode=mode)

    assert not config.explorer.rollout_model.enable_sleep_mode
    said = f"not used in this run, read only by {ROLLOUT} in mode both: {SLEEPS}"
    assert said in config.notes


def test_an_auxiliary_model_does_not_sleep_and_the_header_says_so(resolved) -> None:
    judge = "explorer.auxiliary_models=[{name: judge, model_path: it, enable_sleep_mode: true}]"

    config = resolved(eight(), judge, mode="both")

    assert not config.explorer.auxiliary_models[0].enable_sleep_mode
    said = f"{ROLLOUT} in mode both: explorer.auxiliary_models.0.enable_sleep_mode"
    assert any(note.endswith(said) for note in config.notes)


def test_on_several_machines_weights_go_through_memory(resolved) -> None:
    config = resolved(eight(), "cluster.node_num=2")

    assert config.explorer.rollout_model.engine_num == 16
    assert config.synchronizer.sync_method == "memory"


@pytest.mark.parametrize(("method", "given"), [("sleep", 2), ("wake_up", None)])
def test_an_engine_without_it_says_so_by_name(method, given) -> None:
    engine = object.__new__(TransformersEngine)

    with pytest.raises(ModelError, match="TransformersEngine does not provide 'sleep'"):
        getattr(engine, method)(given)
