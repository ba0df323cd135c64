"""The positional constructor of workflows, ``(model, task, auxiliary_models)``, until 1.0."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trinity.common.workflows.workflow import Workflow

__all__ = ["from_older_order"]

_OLDER_ORDER = ("model", "task", "auxiliary_models")


def from_older_order(
    cls: type[Workflow], older: tuple[Any, ...], given: dict[str, Any], *, missing: object
) -> dict[str, Any]:
    """Return the attributes of a positional call, after one warning for each class."""
    from trinity.common.workflows.task import Task

    if len(older) > len(_OLDER_ORDER) or isinstance(older[0], Task):
        raise TypeError(
            f"{cls.__name__} must call super().__init__(task=task, model=model, "
            f"auxiliary_models=auxiliary_models)"
        )
    named = dict(zip(_OLDER_ORDER, older, strict=False))
    twice = [name for name in named if given[name] not in {missing, None}]
    if twice:
        raise TypeError(f"{cls.__name__} got {' and '.join(twice)} twice")
    if "_has_warned" not in cls.__dict__:
        cls._has_warned = True  # type: ignore[attr-defined]
        warnings.warn(
            f"{cls.__name__} calls super().__init__(model, task, auxiliary_models); write "
            f"super().__init__(task=task, model=model, auxiliary_models=auxiliary_models). "
            f"The positional order goes in 1.0.",
            DeprecationWarning,
            stacklevel=3,
        )
    return named
