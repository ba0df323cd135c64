"""``trinity.algorithm.policy_loss_fn.*``: the core's policy losses under the published names."""

from __future__ import annotations

from trinity.algorithm.policy_loss_fn.base import PolicyLossFn
from trinity.algorithm.policy_loss_fn.dpo import DPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sft import SFTPolicyLossFn
from trinity_algorithms.policy_loss_fn.cispo import CISPOPolicyLossFn
from trinity_algorithms.policy_loss_fn.gspo import GSPOPolicyLossFn
from trinity_algorithms.policy_loss_fn.importance_sampling import ImportanceSamplingPolicyLossFn
from trinity_algorithms.policy_loss_fn.mix import MIXPolicyLossFn
from trinity_algorithms.policy_loss_fn.mix_chord import MIXCHORDPolicyLossFn
from trinity_algorithms.policy_loss_fn.rec import RECPolicyLossFn
from trinity_algorithms.policy_loss_fn.sapo import SAPOPolicyLossFn
from trinity_algorithms.policy_loss_fn.sft_weighted import SFTISPolicyLossFn, SFTPhiPolicyLossFn
from trinity_algorithms.policy_loss_fn.topr import TOPRPolicyLossFn

__all__ = [
    "CISPOPolicyLossFn",
    "DPOLossFn",
    "GSPOLossFn",
    "ImportanceSamplingLossFn",
    "MIXCHORDPolicyLossFn",
    "MIXPolicyLossFn",
    "PPOPolicyLossFn",
    "PolicyLossFn",
    "RECPolicyLossFn",
    "SAPOPolicyLossFn",
    "SFTISLossFn",
    "SFTLossFn",
    "SFTPhiLossFn",
    "TOPRPolicyLossFn",
]

DPOLossFn = DPOPolicyLossFn
GSPOLossFn = GSPOPolicyLossFn
ImportanceSamplingLossFn = ImportanceSamplingPolicyLossFn
SFTISLossFn = SFTISPolicyLossFn
SFTLossFn = SFTPolicyLossFn
SFTPhiLossFn = SFTPhiPolicyLossFn
