"""Protocols of optional methods, which are methods of the base classes now."""

from __future__ import annotations

_NAMES = (
    "Busy Counted DropsOlder ExperienceSource Flushes GivesAgain GivesGroups KeepsLedger Limits "
    "OwnOrder Preflight Scores SharesModule SwapsInFlight TakesBack TakesSamples Tallied "
    "TaskFeedback TellsTrained Waiting"
)


def __getattr__(name: str) -> type:
    """Return an empty class for a protocol that plugins may still inherit or import."""
    if name not in _NAMES.split():
        raise AttributeError(f"module 'trinity.common.ports' has no attribute {name!r}")
    return type(name, (), {"__module__": __name__})
