"""A rank of a sharded model: what it has in memory, and the models that it refuses."""

from __future__ import annotations

import importlib.util
import weakref
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig
from trinity.errors import ModelError
from trinity.trainer.fsdp import refuse_other_settings, settings_of

pytestmark = pytest.mark.skipif(
    not distributed.is_gloo_available(), reason="this build of torch has no gloo"
)

_spec = importlib.util.spec_from_file_location(
    "data_parallel", Path(__file__).with_name("data_parallel.py")
)
data_parallel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(data_parallel)


class RoundedWeights(TorchDispatchMode):
    """Counts the weights that are there in bfloat16 beside those that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.made = []
        self.most = 0

    @property
    def num_now(self) -> int:
        return sum(made() is not None for made in self.made)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        is_weight = isinstance(args[0] if args else None, torch.nn.Parameter)
        if operator is torch.ops.aten._to_copy.default and is_weight:
            self.made.append(weakref.ref(found))
            self.most = max(self.most, self.num_now)
        return found


@pytest.fixture
def group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def test_weights_that_are_rounded_for_a_pass_are_not_kept_to_its_end(tiny, group) -> None:
    """Else each rank has all of them, in every pass, though it holds its part alone."""
    trainer = data_parallel.a_spread_trainer(
        tiny,
        "apart",
        group=group,
        budget=4000,
        precision="bfloat16",
        gradient_checkpointing=True,
    )
    batch, _ = trainer._preparation.batch_of(
        data_parallel.rows(), data_parallel._no_watch, version=0
    )

    with RoundedWeights() as scoring:
        trainer._scorer.logprobs(batch)
    with RoundedWeights() as training, trainer._policy.recomputing():
        trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)

    assert len(scoring.made) > 14  # 7 in each of two layers, and the output layer
    assert (scoring.most, training.most) == (1, 1)


def test_a_rank_with_another_setting_is_told_which() -> None:
    own, first = AutoConfig.for_model("qwen3"), AutoConfig.for_model("qwen3", rms_norm_eps=1e-5)

    with pytest.raises(ModelError, match="rms_norm_eps is 1e-05 on rank 0 and 1e-06 here"):
        refuse_other_settings(settings_of(own), settings_of(first))


def test_the_folder_and_the_version_that_wrote_it_are_no_difference() -> None:
    own, first = AutoConfig.for_model("qwen3"), AutoConfig.for_model("qwen3")
    own._name_or_path, first.transformers_version = "here", "5.0.0"

    refuse_other_settings(settings_of(own), settings_of(first))
