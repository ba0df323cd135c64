"""The engines' older weights lie in a checkpoint as they were handed over."""

from __future__ import annotations

import pickle

import pytest
import torch
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.runtime.record.checkpoint import read_weights, write_weights
from trinity.synchronizer.weights import PackedWeights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_to_the_bit_with_the_version_that_is_asked_for(tmp_path, dtype) -> None:
    table = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    tensors = {"embed": table, "head": table, "rows": table.T, "bias": torch.zeros(3, dtype=dtype)}
    snapshot = WeightSnapshot(version=WeightVersion(7), tensors=tensors)
    travelled = pickle.loads(pickle.dumps(PackedWeights.of(snapshot))).snapshot()

    write_weights(travelled, tmp_path)
    back = read_weights(tmp_path, version=7)

    assert back.version == 7
    assert back.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(back.tensors[name], tensor), name
        assert back.tensors[name].dtype == dtype


def test_weights_that_are_not_there_are_missing_by_their_file(tmp_path) -> None:
    with pytest.raises(OSError, match=r"weights\.safetensors"):
        read_weights(tmp_path, version=1)
