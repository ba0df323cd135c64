"""Brings the conformance checks to ``trinity plugins check``."""

from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_conformance_checks() -> dict[str, str]:
    """Return the groups of checks that this kit adds to the core's."""
    kinds = ("workflow", "reward_fn", "advantage_fn", "policy_loss_fn")
    return {kind: f"trinity_testing.checks.{kind}:checks" for kind in kinds}
