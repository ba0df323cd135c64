"""Policy losses: the contract and its registry."""

from trinity.algorithm.policy_loss_fn.base import POLICY_LOSS_FN, PolicyLossFn

__all__ = ["POLICY_LOSS_FN", "PolicyLossFn"]
