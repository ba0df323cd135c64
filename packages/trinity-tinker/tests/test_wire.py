"""The messages are those of the SDK, and tensors come back as they were sent."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from trinity_tinker.refusal import Refused
from trinity_tinker.tensors import cells_of, cells_of_json
from trinity_tinker.wire import FILE, MESSAGES, message


def without_json_names(file: descriptor_pb2.FileDescriptorProto) -> bytes:
    """Return a schema without what is added when it is read."""
    plain = descriptor_pb2.FileDescriptorProto()
    plain.CopyFrom(file)
    for made in plain.message_type:
        for one in (made, *made.nested_type):
            for field in one.field:
                field.ClearField("json_name")
    return plain.SerializeToString(deterministic=True)


@pytest.mark.sdk
def test_the_schema_is_that_of_the_sdk():
    sdk = pytest.importorskip("tinker.proto.tinker_public_pb2", reason="pip install tinker")
    theirs = descriptor_pb2.FileDescriptorProto()
    sdk.DESCRIPTOR.CopyToProto(theirs)

    assert len(theirs.message_type) == 23
    assert without_json_names(FILE) == without_json_names(theirs)


def test_a_message_of_each_kind_can_be_made_and_read():
    for name in MESSAGES:
        made = message(name)
        made.ParseFromString(b"")
        assert made.SerializeToString() == b""


def test_an_optional_field_that_is_empty_differs_from_one_that_is_missing():
    made = message("SampledSequence")
    assert not made.HasField("logprobs")
    made.logprobs = b""
    again = message("SampledSequence")
    again.ParseFromString(made.SerializeToString())

    assert again.HasField("logprobs")


def a_tensor(values, *, dtype: int, shape: list[int], kind: str):
    made = message("Tensor")
    made.dtype, made.dense = dtype, np.asarray(values, dtype=kind).tobytes()
    made.shape.extend(shape)
    return made


def test_cells_of_a_dense_tensor_are_row_by_row():
    cells = cells_of(a_tensor([1, 2, 3, 4], dtype=2, shape=[2, 2], kind="<i8"), name="x")

    assert cells.values_C.tolist() == [1, 2, 3, 4]
    assert cells.rows_C.tolist() == [0, 0, 1, 1]
    assert cells.columns_C.tolist() == [0, 1, 0, 1]
    assert cells.dense(cells.values_C).tolist() == [[1, 2], [3, 4]]


def test_a_bfloat16_is_the_upper_half_of_a_float32():
    cells = cells_of(a_tensor([0x3FC0], dtype=4, shape=[1], kind="<u2"), name="x")

    assert cells.values_C.tolist() == [1.5]


def test_cells_of_a_sparse_tensor_are_its_entries():
    made = message("Tensor")
    made.dtype = 2
    made.shape.extend([3, 4])
    made.sparse_csr.values = np.array([7, 8, 9], dtype="<i8").tobytes()
    made.sparse_csr.crow_indices = np.array([0, 2, 2, 3], dtype="<i8").tobytes()
    made.sparse_csr.col_indices = np.array([1, 3, 0], dtype="<i8").tobytes()
    cells = cells_of(made, name="x")

    assert cells.is_sparse
    assert cells.dense(cells.values_C).tolist() == [[0, 7, 0, 8], [0, 0, 0, 0], [9, 0, 0, 0]]


@pytest.mark.parametrize(
    "given",
    [
        {"data": [1, 2, 3], "shape": [2, 2]},
        {"shape": [1]},
        {"data": ["a"]},
        {"data": [1], "shape": [1, 2], "sparse_crow_indices": [0, 1], "sparse_col_indices": [2]},
        {"data": [], "shape": [1, -2], "sparse_crow_indices": [0, 0], "sparse_col_indices": []},
    ],
)
def test_a_tensor_whose_parts_do_not_fit_is_refused(given):
    with pytest.raises(Refused, match="'x'"):
        cells_of_json(given, name="x")
