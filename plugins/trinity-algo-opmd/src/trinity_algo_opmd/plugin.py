"""Name OPMD's parts to Trinity."""

from __future__ import annotations

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_advantage_fns() -> dict[str, ComponentSpec]:
    """Return OPMD's advantage, on groups and on the trainer's batch."""
    return {
        "opmd": ComponentSpec(
            "trinity_algo_opmd.advantage:OPMDAdvantageFn",
            summary="reward minus a baseline of its group",
            import_aliases=("trinity.algorithm.advantage_fn.opmd",),
        ),
        "opmd_verl": ComponentSpec(
            "trinity_algo_opmd.advantage:OPMDBatchAdvantageFn",
            summary="the same on token rewards, in the trainer",
        ),
    }


@hookimpl
def trinity_policy_loss_fns() -> dict[str, ComponentSpec]:
    """Return OPMD's loss."""
    return {
        "opmd": ComponentSpec(
            "trinity_algo_opmd.loss:OPMDPolicyLossFn",
            summary="policy gradient, scaled by 1 / (1 + tau)",
            import_aliases=("trinity.algorithm.policy_loss_fn.opmd",),
        )
    }


@hookimpl
def trinity_algorithm_types() -> dict[str, ComponentSpec]:
    """Return the algorithm."""
    return {
        "opmd": ComponentSpec(
            "trinity_algo_opmd.algorithm:OPMDAlgorithm",
            summary="online policy mirror descent",
        )
    }
