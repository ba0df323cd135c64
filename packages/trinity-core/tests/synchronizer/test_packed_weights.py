"""Weights keep names, types, shapes and values on their way."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.common.ports.weights import LORA_A, TensorStream
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


def test_a_stream_rounds_weights_gives_each_once_in_order_and_makes_the_rest_at_its_end() -> None:
    third, made = torch.tensor([1 / 3]), []
    tensors = {"a": third, f"b{LORA_A}": third, "c": torch.tensor([7]), "d": third.double()}
    trained = WeightSnapshot(version=WeightVersion(3), tensors=tensors)

    with TensorStream.rounded(
        trained, "bfloat16", lambda name, tensor: made.append(name) or tensor
    ) as weights:
        assert (list(weights.tensors), "c" in weights.tensors) == (list(tensors), True)
        kinds = [torch.bfloat16, torch.float32, torch.int64, torch.float64]
        assert [one.dtype for one in weights.like.values()] == kinds
        # one third in bfloat16 is 0x3eab: 171 / 512
        assert weights.tensors["a"].item() == 171 / 512
        with pytest.raises(LookupError, match=r"the stream is at 'b.lora_A', not 'd'"):
            weights.tensors["d"]
        assert made == ["a"]

    assert made == ["a", "c", "d"]
    for dtype in ("float32", "auto", None):
        stream = TensorStream.rounded(trained, dtype, lambda _, tensor: tensor)
        assert stream.tensors["a"].dtype == torch.float32
