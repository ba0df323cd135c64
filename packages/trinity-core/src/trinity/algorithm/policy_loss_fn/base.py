"""The contract of a policy loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.algorithm.args import WithDefaults
from trinity.algorithm.fields import by_any_name, field_names
from trinity.algorithm.ops import Normalized
from trinity.extend import Registry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["POLICY_LOSS_FN", "PolicyLossFn"]

POLICY_LOSS_FN = Registry("policy_loss_fn", kind="policy_loss_fn")


class PolicyLossFn(Normalized, WithDefaults, ABC):
    """Computes the core loss of the policy.

    The parameter names of ``__call__`` say which fields of the batch it gets, each ``[B, R]``;
    ``**kwargs`` stands for none. It returns a mean over its rows or tokens and says over which by
    ``normalizer``, so that the trainer may cut a batch. Its metrics are means over the same, except
    those of which ``metric_normalizers`` says something else.

    Whoever calls it may name the fields by our names or by verl's (``old_log_probs``,
    ``response_mask``).

    Args:
        backend: published; the names of every backend are understood, so it changes nothing.
    """

    def __init__(self, backend: str = "verl") -> None:
        self.backend = backend

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in cls.__dict__:
            cls.__call__ = by_any_name(cls.__dict__["__call__"])  # type: ignore[method-assign]

    @abstractmethod
    def __call__(self, logprob: Tensor, **kwargs: Any) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, a scalar with a gradient, and metrics.

        Args:
            logprob: ``[B, R]`` log-probability of each response token; 0 where masked.
            **kwargs: the fields that a subclass names (Any: tensors).
        """

    @property
    def select_keys(self) -> list[str]:
        """Return the names of the fields that ``__call__`` asks for."""
        return field_names(self)
