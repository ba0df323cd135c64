"""A rank of a sharded model: what it has in memory, and the models that it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import distributed
from transformers import AutoConfig
from trinity.errors import ModelError
from trinity.trainer.fsdp import refuse_other_settings, settings_of
from trinity.trainer.microbatch import select_inputs

pytestmark = pytest.mark.skipif(
    not distributed.is_gloo_available(), reason="this build of torch has no gloo"
)

_spec = importlib.util.spec_from_file_location(
    "data_parallel", Path(__file__).with_name("data_parallel.py")
)
data_parallel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(data_parallel)


@pytest.fixture
def group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def test_weights_that_are_rounded_for_a_pass_are_not_kept_to_its_end(tiny, group) -> None:
    """Else each rank has all of them, in every pass, though it holds its part alone."""
    trainer = data_parallel.a_spread_trainer(
        tiny, "apart", group=group, budget=4000, precision="bfloat16"
    )
    batch, _ = trainer._preparation.batch_of(
        data_parallel.rows(), data_parallel._no_watch, version=0
    )
    (packs,) = trainer._scorer.plan(batch)
    inputs = select_inputs(batch, packs)[1]
    sizes = {tuple(sorted(p.shape)) for p in trainer.model.base_model.layers.parameters()}
    kept, during = [], []

    def keep(tensor):
        if tensor.dtype == torch.bfloat16 and tuple(sorted(tensor.shape)) in sizes:
            kept.append(tensor)
            during.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = trainer._policy.score(inputs).logprob.sum()
        now = [tensor.untyped_storage().nbytes() for tensor in kept]
        loss.backward()

    assert len(during) >= 14  # 7 matrices in each of two layers
    assert min(during) > 0
    assert sum(now) == 0
    assert {p.grad.dtype for p in trainer.model.parameters()} == {torch.float32}


def test_a_rank_with_another_setting_is_told_which() -> None:
    own, first = AutoConfig.for_model("qwen3"), AutoConfig.for_model("qwen3", rms_norm_eps=1e-5)

    with pytest.raises(ModelError, match="rms_norm_eps is 1e-05 on rank 0 and 1e-06 here"):
        refuse_other_settings(settings_of(own), settings_of(first))


def test_the_folder_and_the_version_that_wrote_it_are_no_difference() -> None:
    own, first = AutoConfig.for_model("qwen3"), AutoConfig.for_model("qwen3")
    own._name_or_path, first.transformers_version = "here", "5.0.0"

    refuse_other_settings(settings_of(own), settings_of(first))
