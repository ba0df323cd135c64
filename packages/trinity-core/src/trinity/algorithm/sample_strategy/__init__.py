"""Sample strategies: the contract and its registry."""

from trinity.algorithm.sample_strategy.base import SAMPLE_STRATEGY, SampleStrategy

__all__ = ["SAMPLE_STRATEGY", "SampleStrategy"]
