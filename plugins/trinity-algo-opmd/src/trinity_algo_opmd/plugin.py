"""Name the parts of OPMD, AsymRE and SPPO to Trinity."""

from __future__ import annotations

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_advantage_fns() -> dict[str, ComponentSpec]:
    """Return OPMD's and AsymRE's advantage, on groups and on the trainer's batch."""
    return {
        "opmd": ComponentSpec(
            "trinity_algo_opmd.advantage:OPMDAdvantageFn",
            provides=frozenset({"zero_for_equal_rewards"}),
            summary="reward minus a baseline of its group",
            import_aliases=("trinity.algorithm.advantage_fn.opmd",),
        ),
        "opmd_verl": ComponentSpec(
            "trinity_algo_opmd.advantage:OPMDBatchAdvantageFn",
            provides=frozenset({"zero_for_equal_rewards"}),
            summary="the same on token rewards, in the trainer",
        ),
        "asymre": ComponentSpec(
            "trinity_algo_opmd.asymre:ASYMREAdvantageFn",
            summary="reward minus a baseline below the mean of its group",
            import_aliases=("trinity.algorithm.advantage_fn.asymre",),
        ),
        "asymre_verl": ComponentSpec(
            "trinity_algo_opmd.asymre:ASYMREBatchAdvantageFn",
            summary="the same on token rewards, in the trainer",
        ),
    }


@hookimpl
def trinity_policy_loss_fns() -> dict[str, ComponentSpec]:
    """Return OPMD's and SPPO's loss."""
    return {
        "opmd": ComponentSpec(
            "trinity_algo_opmd.loss:OPMDPolicyLossFn",
            provides=frozenset({"zero_for_zero_advantages"}),
            summary="policy gradient, scaled by 1 / (1 + tau)",
            import_aliases=("trinity.algorithm.policy_loss_fn.opmd",),
        ),
        "sppo": ComponentSpec(
            "trinity_algo_opmd.sppo:SPPOPolicyLossFn",
            provides=frozenset({"zero_for_zero_advantages"}),
            summary="policy gradient, near the policy that sampled only",
            import_aliases=("trinity.algorithm.policy_loss_fn.sppo",),
        ),
    }


@hookimpl
def trinity_algorithm_types() -> dict[str, ComponentSpec]:
    """Return the algorithms."""
    return {
        "opmd": ComponentSpec(
            "trinity_algo_opmd.algorithm:OPMDAlgorithm",
            summary="online policy mirror descent",
        ),
        "asymre": ComponentSpec(
            "trinity_algo_opmd.algorithm:ASYMREAlgorithm",
            summary="asymmetric REINFORCE: good runs count for more than bad ones",
        ),
        "sppo": ComponentSpec(
            "trinity_algo_opmd.algorithm:SPPOAlgorithm",
            summary="simple policy optimisation, near the policy that sampled only",
        ),
    }
