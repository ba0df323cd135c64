"""What every section is: strict, mutable, and open about who reads each of its fields."""

from __future__ import annotations

import types
import typing
from typing import Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from trinity.extend.ownership import refuse_other_owner

#: Who reads a setting of an engine that not every engine has.
ENGINES = "engines whose constructor names it"

#: Who reads what is set of the process group that weights travel in.
GROUPS = "sync methods nccl and gloo"

#: Who reads whether explorer and trainer are separate runs.
SIDES = "modes explore and train with storage sql"


def _lowercase(value: object) -> object:
    if isinstance(value, str) and not {".", ":"} & set(value):  # a dotted path keeps its case
        return value.lower()
    return value


#: Closed sets of words are read in any case, as published.
Lowercase = BeforeValidator(_lowercase)


class StrictModel(BaseModel):
    """A section: refuses unknown keys, and checks again when Python assigns to it."""

    model_config = ConfigDict(
        extra="forbid",
        validate_assignment=True,
        validate_default=False,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
        use_attribute_docstrings=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _readable(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the value; an empty section has its defaults, a truth value is no number."""
        wanted = _plain_type(cls.model_fields[str(info.field_name)].annotation)
        if value is None and isinstance(wanted, type) and issubclass(wanted, StrictModel):
            return {}
        if value is None and typing.get_origin(wanted) is list:
            return []
        if wanted in _NUMBERS and _only_looks_like_a_number(value):
            raise ValueError(f"Input should be a number, not {str(value).lower()}")
        return value

    def copied(self) -> Self:
        """Return a copy whose sections, lists and dicts are new and whose other values are shared.

        Live objects in free dicts (a client, a judge) may refuse to be copied, so they are not.
        """
        copy = self.model_copy()
        for name, value in self.__dict__.items():
            copy.__dict__[name] = _copied(value)
        return copy


_NUMBERS = (int, float, int | None, float | None)


def _only_looks_like_a_number(value: object) -> bool:
    """Return whether pydantic reads a number there that nobody wrote: of true, of ``1e_-6``."""
    return isinstance(value, bool) or (isinstance(value, str) and "_" in value)


def _copied(value: Any) -> Any:
    if isinstance(value, StrictModel):
        return value.copied()
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value


def _plain_type(annotation: Any) -> Any:
    """Return the annotation without its ``Annotated`` layers."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _plain_type(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType):
        return annotation
    return annotation


def core(default: Any, text: str, *, switch: str = "", **limits: Any) -> Any:
    """Return a field that the runtime reads.

    Args:
        default: the published default.
        text: the description.
        switch: the field beside this one that turns the feature on; while that is at its default
            this field has no effect and is listed as not used.
        **limits: as pydantic's ``Field`` takes them.
    """
    extra = {"status": "core"} | ({"switch": switch} if switch else {})
    return _field(default, text, extra, limits)


def machine(default: Any, text: str, **limits: Any) -> Any:
    """Return a field that the runtime reads and that follows the machine where it must."""
    return _field(default, text, {"status": "machine"}, limits)


def other(default: Any, text: str, *, used_by: str, **limits: Any) -> Any:
    """Return a field that only ``used_by`` reads; listed as not used where that is not there."""
    return _field(default, text, {"status": "other", "used_by": used_by}, limits)


def not_yet(
    default: Any,
    text: str,
    *,
    values: tuple[Any, ...] = (),
    accepted: tuple[Any, ...] = (),
    switch: str = "",
    **limits: Any,
) -> Any:
    """Return a field whose feature does not exist yet: refused when it is not at its default.

    Args:
        default: the published default.
        text: the description.
        values: where given, only these values are refused.
        accepted: further values that mean the same as the default.
        switch: the field beside this one that turns the feature on; while it is at its default this
            field has no effect and is listed as not used.
        **limits: as pydantic's ``Field`` takes them.
    """
    extra: dict[str, Any] = {"status": "not_yet"}
    extra |= {"values": list(values)} if values else {}
    extra |= {"accepted": list(accepted)} if accepted else {}
    extra |= {"switch": switch} if switch else {}
    return _field(default, text, extra, limits)


def section(model: type[StrictModel], text: str) -> Any:
    """Return a field that holds a section of its own."""
    return Field(default_factory=model, description=text, json_schema_extra={"status": "section"})


def _field(default: Any, text: str, extra: dict[str, Any], limits: dict[str, Any]) -> Any:
    return Field(default, description=text, json_schema_extra=extra, **limits)


refuse_other_owner()  # here as well: what was installed over this package imports a configuration
