"""A plugin of plugin API 1."""

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows():
    return {"frozen_workflow": "frozen_parts:FrozenWorkflow"}


@hookimpl
def trinity_rollout_engines():
    provides = frozenset({"logprobs"})
    return {"frozen_engine": ComponentSpec("frozen_engine:FrozenEngine", provides=provides)}


@hookimpl
def trinity_storages():
    return {
        "frozen_storage": "frozen_parts:FrozenStorage",
        "frozen_sieve": "frozen_parts:FrozenSieve",
    }


@hookimpl
def trinity_experience_operators():
    return {"frozen_operator": "frozen_parts:FrozenOperator"}


@hookimpl
def trinity_monitors():
    return {"frozen_monitor": "frozen_parts:FrozenMonitor"}
