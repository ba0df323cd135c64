"""Weights that travel as files: whole or absent, the newest two, known by their digest."""

from __future__ import annotations

import pytest
import torch
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import CheckpointError
from trinity_ledger.weights_folder import WeightsFolder


def weights(version, value=0.0):
    tied = torch.full((2, 3), value)
    tensors = {"embed": tied, "head": tied, "norm": torch.tensor([1.0], dtype=torch.bfloat16)}
    return WeightSnapshot(version=WeightVersion(version), tensors=tensors)


def test_what_was_written_is_read(tmp_path) -> None:
    folder = WeightsFolder(tmp_path / "weights")
    digest = folder.write(weights(3, 0.5))

    read = folder.read(3, digest=digest)

    assert read.version == 3
    assert torch.equal(read.tensors["head"], torch.full((2, 3), 0.5))
    assert read.tensors["norm"].dtype == torch.bfloat16


def test_the_newest_two_are_kept(tmp_path) -> None:
    folder = WeightsFolder(tmp_path)
    for version in (1, 2, 10):
        folder.write(weights(version))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["v10", "v2"]


def test_a_version_that_is_made_again_takes_the_place_of_what_was_undone(tmp_path) -> None:
    folder = WeightsFolder(tmp_path)
    digests = [folder.write(weights(version)) for version in (2, 3)]
    (tmp_path / ".v4.99").mkdir()  # broken off by a kill
    again = folder.write(weights(2, 1.0))

    assert [path.name for path in tmp_path.iterdir()] == ["v2"]
    assert folder.read(2, digest=digests[0]) is None
    assert folder.read(3, digest=digests[1]) is None
    assert folder.read(2, digest=again).version == 2


def test_weights_that_cannot_be_read_are_not_there(tmp_path) -> None:
    (tmp_path / "v1/model.safetensors").mkdir(parents=True)

    assert WeightsFolder(tmp_path).read(1, digest="d") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "weights").write_text("a file")

    with pytest.raises(
        CheckpointError, match=r"weights of policy version 1 cannot be written .*Free space"
    ):
        WeightsFolder(tmp_path / "weights").write(weights(1))
