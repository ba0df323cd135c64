"""Weights keep names, types, shapes and values on their way."""

from __future__ import annotations

import pickle
import warnings

import torch
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.synchronizer.weights import PackedWeights


def test_every_type_comes_back_as_it_was() -> None:
    tensors = {
        "float": torch.tensor([[1.5, -2.0], [0.25, 3.0]]),
        "half": torch.tensor([1.5, -0.125], dtype=torch.bfloat16),
        "turned": torch.arange(6.0).view(2, 3).t(),
        "one": torch.tensor(7.0),
    }
    packed = PackedWeights.of(WeightSnapshot(version=WeightVersion(3), tensors=tensors))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        snapshot = pickle.loads(pickle.dumps(packed, protocol=5)).snapshot()

    assert snapshot.version == 3
    for name, tensor in tensors.items():
        assert snapshot.tensors[name].dtype == tensor.dtype
        assert torch.equal(snapshot.tensors[name], tensor)


def test_nothing_is_copied_on_either_side() -> None:
    weight = torch.zeros(4)
    packed = PackedWeights.of(WeightSnapshot(version=WeightVersion(0), tensors={"weight": weight}))

    weight[2] = 5.0

    assert packed.snapshot().tensors["weight"].tolist() == [0.0, 0.0, 5.0, 0.0]
