"""How groups are called in experiences, ledgers and messages: ``batch/task``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import EID


def name_of_group(number: int, *, batch_size: int) -> tuple[str, int]:
    """Return batch and task of a group's experiences.

    >>> name_of_group(9, batch_size=8)
    ('2', 1)
    """
    batch, task = divmod(number, batch_size)
    return str(batch + 1), task


def group_of(eid: EID) -> str:
    """Return the name of the group that was begun for an experience, ``batch/task``.

    A workflow may name a group of its own below the task, by a dash: it comes and goes with it.

    >>> from trinity.common.experience import EID
    >>> [group_of(EID(batch=2, task=task)) for task in (1, "1-verdicts")]
    ['2/1', '2/1']
    """
    return f"{eid.batch}/{str(eid.task).partition('-')[0]}"


def names_of_ended(rollouts: Mapping[str, Any]) -> list[str]:
    """Return the names of the groups that had ended, in a state of ``RolloutBuffer`` (Any: json).

    >>> slots = [[0, "consumed", 0, 0, {}], [1, "running", 0, 0, {}], [9, "ready", 0, 4, {}]]
    >>> names_of_ended({"batch": 8, "slots": slots})
    ['1/0', '2/1']
    """
    ended = [number for number, state, *_ in rollouts["slots"] if state != "running"]
    named = (name_of_group(number, batch_size=rollouts["batch"]) for number in ended)
    return [f"{batch}/{task}" for batch, task in named]


def has_ended(eid: EID, rollouts: Mapping[str, Any]) -> bool:
    """Return whether an experience is of a group that had ended (Any: as above).

    >>> from trinity.common.experience import EID
    >>> slots = [[8, "running", 0, 0, {}], [9, "ready", 0, 4, {}]]
    >>> state = {"batch": 8, "begun": 9, "slots": slots}
    >>> [has_ended(EID(batch=2, task=n), state) for n in (0, 1, 2)]
    [False, True, False]
    """
    batch, task = map(int, group_of(eid).split("/"))
    number = (batch - 1) * int(rollouts["batch"]) + task
    running = {n for n, state, *_ in rollouts["slots"] if state == "running"}
    return number <= rollouts["begun"] and number not in running
