"""What must hold in a Ray worker. Opt-in: it takes seconds to start one."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError, WorkerLostError

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.witness import forget_witness, witness

if TYPE_CHECKING:
    from trinity.extend.component import Component
    from trinity.extend.manager import PluginManager, PluginRecord

__all__ = ["checks"]


def the_worker_sees_the_same_plugin(record: PluginRecord, context: CheckContext) -> Finding | None:
    """Find a plugin that a worker does not have, or has another source of."""
    if not record.is_usable:
        raise Skipped(f"the plugin is {record.state}")
    here = _described(context.manager.describe(), record)
    there = _described(witness(context.manager).call("plugins"), record)
    if here == there:
        return None
    if not there:
        return Finding("a worker does not have it, or cannot load it")
    differing = ", ".join(name for name in here if here[name] != there[name])
    return Finding(f"a worker has it with another {differing}")


def survives_the_trip(component: Component, context: CheckContext) -> Finding | None:
    """Find a class that a worker does not find by its name, or cannot import."""
    cls = context.load(component)
    try:
        sent = pickle.dumps(cls)
    except (pickle.PicklingError, AttributeError) as error:
        return Finding(f"it cannot be sent: {error}")
    distribution = component.origin.distribution
    name = f"{distribution}/{component.name}" if distribution else component.name
    own = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found, arrived = _met(context.manager, component.kind, name, sent)
    except WorkerLostError:
        return Finding("importing it ended the worker's process")
    except (TrinityError, ImportError, AttributeError) as error:
        return Finding(f"in a worker: {error}")
    for what, target in (("by its name is", found), ("that was sent is", arrived)):
        if target != own:
            return Finding(f"here it is {own}; in a worker, what is found {what} {target}")
    return None


def _met(manager: PluginManager, kind: str, name: str, sent: bytes) -> tuple[str, str]:
    try:
        found, arrived = witness(manager).call("meet", kind, name, sent)
    except WorkerLostError:
        forget_witness()
        raise
    return str(found), str(arrived)


def _described(rows: list[dict[str, Any]], record: PluginRecord) -> dict[str, Any]:
    """Return the version and the source of the plugin among these."""
    for row in rows:
        if (row["plugin"], row["distribution"]) == (record.name, record.distribution):
            return {"version": row["version"], "source": row["source_hash"]}
    return {}


checks = (
    Check(
        id="ray.digest",
        function=the_worker_sees_the_same_plugin,
        remedy="Make what the plugin module needs exist on every node; let it depend on nothing "
        "that only the first process has.",
        is_opt_in=True,
        is_apart=False,  # one worker stays for all checks
    ),
    Check(
        id="ray.component",
        function=survives_the_trip,
        remedy="Define it at the top of a module that every worker can import, the same class "
        "wherever it is imported.",
        kinds=frozenset({"*"}),
        is_opt_in=True,
        is_apart=False,  # one worker stays for all checks
    ),
)
