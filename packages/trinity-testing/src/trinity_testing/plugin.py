"""Brings conformance checks to ``trinity plugins check``, examples, and a text world to runs."""

from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_conformance_checks() -> dict[str, str]:
    """Return the groups of checks that this kit adds to the core's."""
    checks = "trinity_testing.checks"
    return {
        "conduct": f"{checks}.conduct:checks",
        "workflow": f"{checks}.workflow:checks",
        "reward_fn": f"{checks}.reward_fn:checks",
        "advantage_fn": f"{checks}.advantage_fn:checks",
        "policy_loss_fn": f"{checks}.policy_loss_fn:checks",
        "policy_loss_fn.gradient": f"{checks}.policy_gradient:checks",
        "kl_fn": f"{checks}.kl_fn:checks",
        "entropy_loss_fn": f"{checks}.entropy_loss_fn:checks",
        "experience_operator": f"{checks}.experience_operator:checks",
        "task_selector": f"{checks}.task_selector:checks",
        "priority_fn": f"{checks}.priority_fn:checks",
        "sample_strategy": f"{checks}.sample_strategy:checks",
        "algorithm": f"{checks}.algorithm:checks",
        "storage": f"{checks}.storage:checks",
        "trainer": f"{checks}.trainer:checks",
        "reply_parser": f"{checks}.reply_parser:checks",
        "rollout_engine": f"{checks}.rollout_engine:checks",
        "rollout_engine.structure": f"{checks}.engine_structure:checks",
        "sync_method": f"{checks}.sync_method:checks",
        "advisor": f"{checks}.advisor:checks",
        "monitor": f"{checks}.monitor:checks",
        "ray": f"{checks}.ray_worker:checks",
    }


@hookimpl
def trinity_published_modules() -> dict[str, str]:
    """Return where version 0.1 published the checks; it works until 0.2."""
    return {"trinity.extend.conformance.checks": "trinity_testing.conformance"}


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the command that copies an example of ours."""
    target = "trinity_testing.example_commands:app"
    return {"examples": ComponentSpec(target, "List and copy the examples.")}


@hookimpl
def trinity_workflows() -> dict[str, str]:
    """Return the walk through a text world: by turns, by steps, and planned in one answer."""
    return {
        "text_world": "trinity_testing.text_world:TextWorldWorkflow",
        "text_world_steps": "trinity_testing.text_world:TextWorldStepsWorkflow",
        "text_world_plan": "trinity_testing.text_world:TextWorldPlanWorkflow",
    }
