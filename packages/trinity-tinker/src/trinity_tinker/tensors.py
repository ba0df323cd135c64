"""Tensors of the protocol: little-endian bytes, dense or sparse in CSR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity_tinker.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["MAX_CELLS", "Cells", "bytes_of", "cells_of", "cells_of_json"]

MAX_CELLS = 2**26  # of a tensor or an answer, with those that sparse tensors leave out
_FLOAT, _INT64, _INT32, _BFLOAT16 = 1, 2, 3, 4  # DType of the schema
_TYPES = {_FLOAT: "<f4", _INT64: "<i8", _INT32: "<i4", _BFLOAT16: "<u2"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """A tensor ``[L]`` or ``[L, K]`` as a list of cells, row by row."""

    values_C: Array
    rows_C: NDArray[np.int64]
    shape: tuple[int, ...]
    columns_C: NDArray[np.int64]  # 0 where the shape is [L]
    is_sparse: bool = False

    def dense(self, values_C: Array) -> Array:
        """Return values of the cells in the tensor's shape, 0 where there is no cell."""
        full = np.zeros(self.shape, dtype=values_C.dtype)
        if len(self.shape) == 1:
            full[self.rows_C] = values_C
        else:
            full[self.rows_C, self.columns_C] = values_C
        return full


def cells_of(tensor: Any, *, name: str) -> Cells:
    """Return the cells of a ``Tensor`` message (Any: its class is made when it is imported).

    Raises:
        Refused: its bytes are not those of its shape.
    """
    kind = _TYPES.get(tensor.dtype)
    if kind is None:
        raise Refused(f"the tensor {name!r} has the unknown type {tensor.dtype}.")
    shape = tuple(tensor.shape)
    if tensor.WhichOneof("encoding") == "sparse_csr":
        csr = tensor.sparse_csr
        values = _from_bytes(csr.values, kind, name)
        crow, columns = (
            _from_bytes(part, "<i8", name) for part in (csr.crow_indices, csr.col_indices)
        )
        return _sparse(values, crow, columns, shape, name=name)
    return _dense(_from_bytes(tensor.dense, kind, name), shape, name=name)


def cells_of_json(tensor: dict[str, Any], *, name: str) -> Cells:
    """Return the cells of a tensor as JSON has it (Any: of a client).

    Raises:
        Refused: its parts do not fit each other.
    """
    try:
        values = np.asarray(tensor["data"], dtype=np.int64)
        shape = tuple(int(size) for size in tensor.get("shape") or [len(values)])
        if tensor.get("sparse_crow_indices") is None:
            return _dense(values, shape, name=name)
        indices = (tensor["sparse_crow_indices"], tensor["sparse_col_indices"])
        crow, columns = (np.asarray(part, dtype=np.int64) for part in indices)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"the tensor {name!r} cannot be read: {error!r}.") from error
    return _sparse(values, crow, columns, shape, name=name)


def bytes_of(values: Sequence[float] | Array, kind: str) -> bytes:
    """Return values as the protocol sends them; ``kind``: a type of NumPy."""
    return np.ascontiguousarray(np.asarray(values, dtype=kind)).tobytes()


def _from_bytes(raw: bytes, kind: str, name: str) -> Array:
    try:
        values = np.frombuffer(raw, dtype=kind)
    except ValueError as error:
        raise Refused(f"the tensor {name!r} cannot be read: {error}.") from error
    if kind == "<u2":  # bfloat16: the upper half of a float32
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.int64) if kind == "<i4" else values


def _dense(values: Array, shape: tuple[int, ...], *, name: str) -> Cells:
    if len(shape) not in {1, 2} or int(np.prod(shape)) != values.size:
        raise Refused(f"the tensor {name!r} has {values.size} values and the shape {list(shape)}.")
    width = 1 if len(shape) == 1 else shape[1]
    cells = np.arange(values.size, dtype=np.int64)
    return Cells(
        values_C=values.ravel(), rows_C=cells // width, columns_C=cells % width, shape=shape
    )


def _sparse(
    values: Array,
    crow: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, ...],
    *,
    name: str,
) -> Cells:
    if len(shape) == 2 and shape[0] * shape[1] > MAX_CELLS:
        raise Refused(f"the tensor {name!r} has the shape {list(shape)}: over {MAX_CELLS} cells.")
    fits = (
        len(shape) == 2
        and shape[1] >= 0
        and len(crow) == shape[0] + 1
        and crow[0] == 0
        and crow[-1] == len(values) == len(columns)
        and bool((np.diff(crow) >= 0).all())
        and bool(((columns >= 0) & (columns < shape[1])).all())
    )
    if not fits:
        raise Refused(f"the sparse tensor {name!r} does not fit its shape {list(shape)}.")
    rows = np.repeat(np.arange(shape[0], dtype=np.int64), np.diff(crow))
    return Cells(values_C=values, rows_C=rows, columns_C=columns, shape=shape, is_sparse=True)
