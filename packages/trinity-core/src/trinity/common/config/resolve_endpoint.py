"""Workflows that ask by HTTP switch the endpoint on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.check_names import tasksets_in_use

if TYPE_CHECKING:
    from trinity.common.config.resolution import Resolution

__all__ = ["resolve_endpoint"]

_SWITCH = "explorer.rollout_model.enable_openai_api"


def resolve_endpoint(work: Resolution) -> None:
    """Switch the endpoint on for a workflow that needs it, where nobody said otherwise."""
    if work.asked(_SWITCH):
        return
    for _, taskset in tasksets_in_use(work.config):
        name = taskset.default_workflow_type
        if name and getattr(work.parts.load("workflow", name), "needs_endpoint", False):
            work.fill(_SWITCH, value=True, origin=f"workflow {name}")
