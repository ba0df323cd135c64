"""The contract of an algorithm: which parts belong together, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.schema import ExperienceModel
from trinity.extend import Registry

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["ALGORITHM_TYPE", "AlgorithmType"]

ALGORITHM_TYPE = Registry("algorithm", kind="algorithm")


class AlgorithmType:
    """Describes an algorithm by the names of its components; it is never instantiated."""

    use_critic: ClassVar[bool] = False
    use_reference: ClassVar[bool] = True  # False: no reference model is loaded
    use_advantage: ClassVar[bool] = True  # False: no advantage function is called
    can_balance_batch: ClassVar[bool] = True  # False: rows keep their order in micro-batches
    schema: ClassVar[type | str] = ExperienceModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:  # Any: the values of the section `algorithm`
        """Return what the section ``algorithm`` holds where the user says nothing.

        A key that names an attribute of the class overrides it.
        """
        return {}

    @classmethod
    def setting(cls, name: str) -> Any:  # Any: the attribute's type
        """Return an attribute, or what ``default_config`` puts in its place."""
        return cls.default_config().get(name, getattr(cls, name))

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Refuse a resolved configuration that the algorithm cannot run.

        Raises:
            ConfigError: saying which key, and what to write.
        """
