"""The protobuf messages of the protocol, package ``tinker_public``, built when this is imported.

A line of a schema is a message; a field is ``number name type``, with ``*`` before a repeated type,
``?`` before an optional one, ``map`` before the values of a map from texts, and ``/name`` behind a
member of a oneof. A pool of its own keeps the messages apart from those of the client's package,
which has the same names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["ENUMS", "FILE", "MESSAGES", "PACKAGE", "message"]

PACKAGE = "tinker_public"
ENUMS = {
    "StopReason": ("STOP_REASON_STOP", "STOP_REASON_LENGTH"),
    "DType": (
        "DTYPE_UNSPECIFIED",
        "DTYPE_FLOAT32",
        "DTYPE_INT64",
        "DTYPE_INT32",
        "DTYPE_BFLOAT16",
    ),
}
MESSAGES = {
    "SampleResponse": (
        "1 sequences *SampledSequence, 2 prompt_logprobs ?bytes, "
        "3 topk_prompt_logprobs ?TopkLogprobs, 4 prompt_cache_hit_tokens int32, "
        "5 target_prompt_logprobs ?Tensor, 6 prompt_alt_tokens ?PromptAltTokens"
    ),
    "PromptAltTokens": "1 tokens Tensor, 2 logprobs Tensor",
    "SampledSequence": (
        "1 stop_reason StopReason, 2 tokens bytes, 3 logprobs ?bytes, "
        "4 topk_sampled_logprobs ?TopkLogprobs"
    ),
    "TopkLogprobs": "1 token_ids bytes, 2 logprobs bytes, 3 k uint32, 4 length uint32",
    "SparseCsr": "1 values bytes, 2 crow_indices bytes, 3 col_indices bytes",
    "Tensor": "1 dense bytes/encoding, 2 sparse_csr SparseCsr/encoding, 3 dtype DType, "
    "4 shape *int64",
    "BatchedTensor": "1 data bytes, 2 offsets bytes, 3 dtype DType, 4 trailing_shape *int64",
    "ArrayRecord": "1 type_tag string, 2 fields map:BatchedTensor, 3 num_datums int64",
    "ForwardBackwardOutput": (
        "1 loss_fn_output_type string, 2 loss_fn_outputs *ArrayRecord, 3 metrics map:double"
    ),
    "ForwardBackwardRequest": (
        "1 model_id string, 2 seq_id int32, 3 data *Datum, 4 loss_fn string, "
        "5 loss_fn_config map:double, 6 forward_only bool, 7 loss_fn_config_v2 map:LossConfigValue"
    ),
    "LossConfigValue": "1 number double/value, 2 text string/value",
    "Datum": (
        "1 model_input *Chunk, 2 loss_fn_inputs map:Tensor, "
        "3 model_input_spans *ProvenanceSpan, 4 loss_fn_input_spans *ProvenanceSpan"
    ),
    "ProvenanceSpan": (
        "1 prompt_tokens PromptProvenanceSpan/span, 2 sampled_tokens SampledProvenanceSpan/span"
    ),
    "PromptProvenanceSpan": "1 sequence_id string, 2 offset int64, 3 length int64",
    "SampledProvenanceSpan": "1 sequence_id string, 2 offset int64, 3 length int64",
    "Chunk": "1 encoded_text EncodedTextChunk/chunk, 2 image ImageChunk/chunk, "
    "3 dmel DmelChunk/chunk",
    "EncodedTextChunk": "1 tokens bytes",
    "ImageChunk": (
        "1 data bytes, 2 format string, 3 expected_tokens ?int32, "
        "4 override_dimensions ?ImageDimensions"
    ),
    "ImageDimensions": "1 width uint32, 2 height uint32",
    "DmelChunk": "1 dmel bytes",
    "SamplingParams": (
        "1 max_tokens ?int32, 2 seed ?uint64, 3 temperature ?float, 4 top_k ?int32, "
        "5 top_p ?float, 6 stop_strs StopStrings/stop, 7 stop_tokens StopTokens/stop"
    ),
    "StopStrings": "1 values *string",
    "StopTokens": "1 values *int32",
}
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="tinker_public.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        made = file.message_type.add(name=name)
        for text in fields.split(", "):
            _add_field(made, text)
        _note_optional(made)
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    return file


def _add_field(made: descriptor_pb2.DescriptorProto, text: str) -> None:
    number, name, kind = text.split(" ")
    kind, _, oneof = kind.partition("/")
    field = made.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith("map:"):
        kind = "*" + _add_entry(made, name, kind.removeprefix("map:"))
    if kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
    if kind.startswith("?"):
        field.proto3_optional = True
    _set_type(field, kind.lstrip("*?"))
    if oneof:
        if not made.oneof_decl:
            made.oneof_decl.add(name=oneof)
        field.oneof_index = 0


def _add_entry(made: descriptor_pb2.DescriptorProto, name: str, kind: str) -> str:
    """Add the message of a map's entries; return its name within the one that has the map."""
    entry = made.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
    _set_type(key, "string")
    _set_type(value, kind)
    return f"{made.name}.{entry.name}"


def _note_optional(made: descriptor_pb2.DescriptorProto) -> None:
    """Add the oneof of one member that stands for each optional field, after all others."""
    for field in made.field:
        if field.proto3_optional:
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind in ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


FILE = _file()
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(FILE)  # type: ignore[no-untyped-call, unused-ignore]


def message(name: str) -> Any:
    """Return a new message of a name (Any: its class is made here).

    >>> request = message("ForwardBackwardRequest")
    >>> request.loss_fn_config_v2["beta"].number = 0.5
    >>> len(request.SerializeToString())
    19
    """
    found = _POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)()
