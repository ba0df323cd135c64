"""The maths: what is computed. Importing the contracts imports no torch."""

from trinity.algorithm.advantage_fn import ADVANTAGE_FN, AdvantageFn
from trinity.algorithm.algorithm import ALGORITHM_TYPE, AlgorithmType
from trinity.algorithm.entropy_loss_fn import ENTROPY_LOSS_FN, EntropyLossFn
from trinity.algorithm.kl_fn import KL_FN, KLFn
from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN, PolicyLossFn
from trinity.algorithm.sample_strategy import SAMPLE_STRATEGY, SampleStrategy
from trinity.algorithm.schema import ExperienceModel

__all__ = [
    "ADVANTAGE_FN",
    "ALGORITHM_TYPE",
    "ENTROPY_LOSS_FN",
    "KL_FN",
    "POLICY_LOSS_FN",
    "SAMPLE_STRATEGY",
    "AdvantageFn",
    "AlgorithmType",
    "EntropyLossFn",
    "ExperienceModel",
    "KLFn",
    "PolicyLossFn",
    "SampleStrategy",
]
