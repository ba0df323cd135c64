"""What a ``forward_backward`` asks for, read from its message, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trinity_tinker.losses import Loss, loss_of
from trinity_tinker.refusal import Refused
from trinity_tinker.scored_rows import ScoredRow
from trinity_tinker.tensors import MAX_CELLS, Cells, bytes_of, cells_of
from trinity_tinker.wire import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["LossRequest", "read_loss_request", "write_output"]

TARGETS = "target_tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRequest:
    """All datums of a request: texts, what is scored in them, and what the loss takes.

    Cells are those of ``target_tokens``, in the order of each row's ``targets_N``.
    """

    name: str  # of the loss
    loss: Loss
    settings: dict[str, float]
    rows: list[ScoredRow]
    fields: list[dict[str, Tensor]]  # of each row: inputs of the loss, [N] float32
    targets: list[Cells]
    forward_only: bool

    def loss_of_row(self, number: int, logprob_N: Tensor) -> Tensor:
        """Return the loss of one row, a scalar."""
        given = self.fields[number]
        fields = {name: value.to(logprob_N.device) for name, value in given.items()}
        return self.loss.formula(logprob_N, fields, self.settings)

    def summary(self) -> dict[str, Any]:
        """Return what it asks for in a few numbers (Any: values of JSON)."""
        found: dict[str, Any] = {
            "loss_fn": self.name,
            "datums": len(self.rows),
            "tokens": sum(len(row.targets_N) for row in self.rows),
        }
        advantages = [fields["advantages"] for fields in self.fields if "advantages" in fields]
        if advantages and found["tokens"]:
            found["advantage"] = float(torch.cat(advantages).double().mean())
        return found


def read_loss_request(raw: bytes, *, vocab: int, max_length: int | None) -> LossRequest:
    """Return what a ``ForwardBackwardRequest`` asks for.

    Args:
        raw: the message.
        vocab: of the model.
        max_length: most tokens of a text; None: any number of tokens and cells, as it was taken
            before.

    Raises:
        Refused: it asks for what there is not, or does not fit together.
    """
    request = message("ForwardBackwardRequest")
    request.ParseFromString(raw)
    loss = loss_of(request.loss_fn)
    given: dict[str, float | str] = dict(request.loss_fn_config)
    for name, value in request.loss_fn_config_v2.items():
        given[name] = getattr(value, value.WhichOneof("value") or "number")
    if not request.data:
        raise Refused("forward_backward has no datum.")
    read: list[_Datum] = []
    num_cells = 0
    for number, datum in enumerate(request.data):
        one = _Datum(
            number, datum, loss=loss, name=request.loss_fn, vocab=vocab, max_length=max_length
        )
        read.append(one)
        num_cells += prod(one.targets.shape)
        if max_length is not None and num_cells > MAX_CELLS:
            raise Refused(
                f"the datums have more than {MAX_CELLS} cells of target_tokens together, with "
                f"those that sparse tensors leave out; the answer has a number for each. Send "
                f"fewer datums in a request."
            )
    return LossRequest(
        name=request.loss_fn,
        loss=loss,
        settings=loss.settings_with(request.loss_fn, given),
        rows=[one.row for one in read],
        fields=[one.fields for one in read],
        targets=[one.targets for one in read],
        forward_only=request.forward_only,
    )


def tokens_of(chunks: Sequence[Any], *, where: str) -> list[int]:
    """Return the token ids of the chunks of a text (Any: messages).

    Raises:
        Refused: one is an image or audio.
    """
    tokens: list[int] = []
    for chunk in chunks:
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise Refused(f"{where} has a chunk of {kind or 'nothing'}; only text is known here.")
        tokens += np.frombuffer(chunk.encoded_text.tokens, dtype="<i4").tolist()
    return tokens


class _Datum:
    """One datum, checked."""

    def __init__(
        self, number: int, datum: Any, *, loss: Loss, name: str, vocab: int, max_length: int | None
    ) -> None:
        self._where = f"datum {number}"
        tokens = tokens_of(datum.model_input, where=self._where)
        inputs = dict(datum.loss_fn_inputs)
        self._check_names(inputs, loss=loss, name=name)
        self.targets = cells_of(inputs.pop(TARGETS), name=TARGETS)
        self._check(tokens, vocab=vocab, max_length=max_length)
        self.row = ScoredRow(
            tokens_L=torch.tensor(tokens),
            slots_N=torch.from_numpy(self.targets.rows_C.copy()),
            targets_N=torch.from_numpy(self.targets.values_C.astype(np.int64)),
        )
        if name != "cross_entropy" and len(self.targets.shape) > 1:
            raise Refused(f"{self._where}: the loss {name} takes one target for each position.")
        self.fields = {key: self._field(key, tensor) for key, tensor in inputs.items()}
        if max_length is not None:
            self._check_finite()

    def _check_names(self, inputs: dict[str, Any], *, loss: Loss, name: str) -> None:
        wanted = {TARGETS, *loss.inputs}
        unknown, missing = sorted(set(inputs) - wanted), sorted(wanted - set(inputs))
        if unknown:
            raise Refused(
                f"{self._where}: the loss {name} takes no input {unknown[0]!r}; it takes "
                f"{', '.join(sorted(wanted))}."
            )
        if missing:
            raise Refused(f"{self._where}: the loss {name} needs the input {missing[0]!r}.")

    def _check(self, tokens: list[int], *, vocab: int, max_length: int | None) -> None:
        if not tokens or (max_length is not None and len(tokens) > max_length):
            raise Refused(
                f"{self._where} has {len(tokens)} tokens; the context of the model is {max_length}."
            )
        if self.targets.shape[0] != len(tokens):
            raise Refused(
                f"{self._where} has {len(tokens)} tokens and {self.targets.shape[0]} rows of "
                f"target_tokens; position i of the input predicts row i of them."
            )
        for ids in (np.asarray(tokens), self.targets.values_C):
            if len(ids) and not (ids.min() >= 0 and ids.max() < vocab):
                raise Refused(f"{self._where} has a token outside of 0 to {vocab - 1}.")

    def _check_finite(self) -> None:
        for name, given in self.fields.items():
            odd = (~given.isfinite()).nonzero()
            if len(odd):
                cell = int(odd[0])
                raise Refused(
                    f"{self._where}: {name!r} is {float(given[cell])} at position "
                    f"{self.targets.rows_C[cell]}; each number must be finite."
                )

    def _field(self, name: str, tensor: Any) -> Tensor:
        """Return an input of the loss at the cells of the targets."""
        cells = cells_of(tensor, name=name)
        if cells.shape != self.targets.shape:
            raise Refused(
                f"{self._where}: {name!r} has the shape {list(cells.shape)}, target_tokens "
                f"{list(self.targets.shape)}."
            )
        full = cells.dense(cells.values_C.astype(np.float32))
        targets = self.targets
        place = (targets.rows_C,) if full.ndim == 1 else (targets.rows_C, targets.columns_C)
        return torch.from_numpy(np.ascontiguousarray(full[place]))


def write_output(targets: Sequence[Cells], logprobs: Sequence[Tensor], *, loss: float) -> bytes:
    """Return the ``ForwardBackwardOutput`` of a request.

    Args:
        targets: the cells that were scored, for each datum.
        logprobs: ``[N]`` of each datum.
        loss: the sum over all datums.
    """
    output = message("ForwardBackwardOutput")
    output.loss_fn_output_type = "ArrayRecord"
    output.metrics["loss:sum"] = loss
    dense = [one.dense(part.numpy()) for one, part in zip(targets, logprobs, strict=True)]
    widths = [array.shape[1:] for array in dense]
    first = 0
    for last in range(1, len(dense) + 1):  # a record has datums of one trailing shape
        if last < len(dense) and widths[last] == widths[first]:
            continue
        part = dense[first:last]
        record = output.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(part))
        field = record.fields["logprobs"]
        field.data = b"".join(bytes_of(array, "<f4") for array in part)
        field.offsets = bytes_of(np.cumsum([0, *(4 * array.size for array in part)]), "<i8")
        field.dtype = 1
        field.trailing_shape.extend(widths[first])
        first = last
    return bytes(output.SerializeToString())
