"""Operators: what happens to experiences before they are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.extend import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["EXPERIENCE_OPERATORS", "ExperienceOperator", "ExperienceOperatorV1"]

EXPERIENCE_OPERATORS = Registry("experience_operators", kind="experience_operator")


class ExperienceOperator(ABC):
    """Filters or changes the experiences of an explore step, or of one group at a time.

    Attributes:
        needs_whole_step: it compares the groups of a step with each other, so that no run with
            ``sync_style: fully_async``, which has no steps, may name it.
    """

    needs_whole_step: bool = False

    @abstractmethod
    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences that go on, and metrics."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Free what the operator holds."""


class ExperienceOperatorV1(ABC):
    """The awaiting form: all of its methods run in one event loop, one after the other.

    Attributes:
        auxiliary_models: clients by the model's name or number; empty, as there are none yet.
        needs_whole_step: as of :class:`ExperienceOperator`.
    """

    needs_whole_step: bool = False
    auxiliary_models: Mapping[str | int, list[Any]] = {}  # Any: clients of an API

    def set_auxiliary_model(
        self, auxiliary_models: Mapping[str | int, list[Any]] | None = None
    ) -> None:
        """Take the auxiliary models, before ``prepare``."""
        self.auxiliary_models = auxiliary_models or {}

    async def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Get ready, once, before the first experiences come."""

    @abstractmethod
    async def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences that go on, and metrics."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Free what the operator holds."""
