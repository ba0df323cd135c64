"""On several machines a plan has the ranks that the run gets: on whole machines only."""

from __future__ import annotations

import itertools

import pytest
from trinity.common.config import Machine, check, load_config, resolve
from trinity.common.config.memory import known_shape
from trinity.common.config.resolve_gpus import num_ranks
from trinity.extend import get_manager
from trinity.runtime.ray.gpu_allocation import Host, gpu_shares

EIGHT = Machine(
    num_gpus=8, has_bf16=True, gpu_bytes=80 * 10**9, model=known_shape("Qwen/Qwen2.5-32B")
)
ENGINE = "explorer.rollout_model"


@pytest.fixture
def resolved(a_run):
    """Return a function that resolves a small file for machines of eight GPUs."""

    def make(num: int, *settings: str):
        lengths = ("model.max_prompt_tokens=1024", "model.max_response_tokens=1024")
        overrides = (*lengths, "model.max_model_len=2048", f"cluster.node_num={num}", *settings)
        return resolve(load_config(a_run(), overrides=overrides), EIGHT)

    return make


def test_a_machine_that_engines_use_too_counts_for_no_rank(resolved) -> None:
    """12 engines leave 4 GPUs of one machine and 8 of another: 8 ranks. 32B needs more."""
    config = resolved(3, f"{ENGINE}.engine_num=12")
    said = [one.message for one in check(config, EIGHT) if "computed" in one.message]

    assert num_ranks(config, EIGHT) == 8
    assert len(said) == 1
    assert "on each of 8 GPUs" in said[0]


def test_by_default_each_of_several_machines_is_of_one_side(resolved) -> None:
    config = resolved(3)

    assert config.explorer.rollout_model.engine_num == 8
    assert config.origins[f"{ENGINE}.engine_num"] == "half of the machines"
    assert num_ranks(config, EIGHT) == 16
    assert not [one for one in check(config, EIGHT) if "computed" in one.message]


def test_wide_engines_do_not_spread_over_machines_by_default(resolved) -> None:
    """Of 4 x 8 GPUs two machines hold two engines of 3 each."""
    config = resolved(4, f"{ENGINE}.tensor_parallel_size=3")
    alone = resolved(4, f"{ENGINE}.tensor_parallel_size=3", "mode=explore")

    assert config.explorer.rollout_model.engine_num == 4
    assert num_ranks(config, EIGHT) == 16
    assert alone.explorer.rollout_model.engine_num == 8


def test_the_plan_has_as_many_ranks_as_the_run_gets(resolved) -> None:
    asked = ["", *(f"{ENGINE}.engine_num={num}" for num in (1, 2, 3, 5, 12))]
    for num, width, engines in itertools.product((1, 2, 3, 5), (1, 2, 4), asked):
        config = resolved(num, f"{ENGINE}.tensor_parallel_size={width}", *filter(None, [engines]))
        used = config.explorer.rollout_model.engine_num * width
        if used < 8 * num:
            shares, _ = gpu_shares(config, get_manager(), hosts=[Host(8, 8)] * num)
            assert num_ranks(config, EIGHT) == shares.num_ranks, (num, width, engines)


def test_a_trainer_that_runs_by_itself_leaves_its_explorers_engines_their_gpus(resolved) -> None:
    config = resolved(1, "mode=train", "synchronizer.standalone=true", f"{ENGINE}.engine_num=2")

    shares, _ = gpu_shares(config, get_manager(), hosts=[Host(8, 8)])

    assert num_ranks(config, EIGHT) == shares.num_ranks == 6
