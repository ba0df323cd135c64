"""Which groups are on their way, wait to be trained, or were taken: the places of a run in flight.

    begin --> RUNNING --ended--> WAITING --take--> TAKEN --loaded--> (its place is free)
                 |                  |  oldest first, and none more than `window` numbers younger
                 +----dropped-------+  than the oldest that was not taken

A group has a place from its beginning until the engines have weights that were trained on it. When
it begins, at most ``capacity - 1`` others have one, and at most ``window - 1`` younger ones go
before it: so its weights lag ``floor((capacity + window - 2) / batch_size)`` steps at most when it
is trained, whatever is fast or slow.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config
    from trinity.common.experience import EID

__all__ = [
    "Flight",
    "FlightPlan",
    "GroupNumber",
    "group_of",
    "has_ended",
    "name_of_group",
    "names_of_ended",
]

GroupNumber = int  # counts the groups of a run from 0, in the order in which they begin


@dataclass(frozen=True, kw_only=True, slots=True)
class FlightPlan:
    """How many groups may be on their way, and how far one may overtake another."""

    batch_size: int  # groups that an optimizer step trains
    capacity: int  # groups that have a place at a time
    window: int  # numbers, from the oldest group not taken, that may be taken; 1: strict order

    @classmethod
    def of(cls, config: Config) -> FlightPlan:
        """Return that of a configuration with style ``fully_async``."""
        size, explorer = config.buffer.batch_size, config.explorer
        capacity = explorer.max_inflight_batches * size
        return cls(
            batch_size=size, capacity=capacity, window=max(1, int(explorer.window * capacity))
        )

    @classmethod
    def before(cls, state: Mapping[str, Any]) -> FlightPlan:
        """Return the plan in a state of :class:`Flight`."""
        return cls(**{name: state[name] for name in ("batch_size", "capacity", "window")})

    def or_wider(self, other: FlightPlan) -> FlightPlan:
        """Return a plan that lets everything happen that either does."""
        return replace(
            self,
            capacity=max(self.capacity, other.capacity),
            window=max(self.window, other.window),
        )

    @property
    def most_age(self) -> int:
        """Return by how many optimizer steps weights of a group can lag when it is trained.

        >>> [
        ...     FlightPlan(batch_size=8, capacity=8 * n, window=int(0.3 * 8 * n)).most_age
        ...     for n in (2, 3, 5)
        ... ]
        [2, 3, 6]
        >>> FlightPlan(batch_size=8, capacity=16, window=1).most_age
        1
        """
        return (self.capacity + self.window - 2) // self.batch_size


@dataclass
class Flight:
    """The groups of a run, by their numbers; changed by one thread at a time.

    >>> flight = Flight(FlightPlan(batch_size=2, capacity=4, window=2))
    >>> while flight.has_room:
    ...     _ = flight.begin(task={})
    >>> for number in (1, 2, 3):
    ...     flight.ended(number)
    >>> flight.takeable()  # 2 is too young as long as 0 was not taken
    [1]
    >>> flight.ended(0)
    >>> flight.take(flight.takeable())
    >>> sorted(flight.waiting), flight.has_room
    ([2, 3], False)
    >>> flight.loaded(1)
    >>> flight.has_room
    True
    """

    plan: FlightPlan
    num_begun: int = 0
    version: int = 0  # of the weights that groups begin with now
    running: dict[GroupNumber, dict[str, int]] = field(default_factory=dict)  # and their tasks
    waiting: set[GroupNumber] = field(default_factory=set)
    taken: list[GroupNumber] = field(default_factory=list)  # whose places are not free yet
    num_taken: int = 0  # in the whole run
    versions: dict[GroupNumber, int] = field(default_factory=dict)  # that open groups began with
    _earlier: FlightPlan | None = None  # of groups that began before the last start
    _num_earlier: int = 0  # the numbers below are theirs

    @property
    def widest(self) -> FlightPlan:
        """Return the plan; a wider one as long as there are groups that began under that."""
        numbers = (*self.running, *self.waiting, *self.taken)
        if self._earlier is None or min(numbers, default=self._num_earlier) >= self._num_earlier:
            return self.plan
        return self._earlier

    @property
    def has_room(self) -> bool:
        """Return whether one more group may begin."""
        return len(self.running) + len(self.waiting) + len(self.taken) < self.plan.capacity

    @property
    def num_wanted(self) -> int:
        """Return how many groups were not dropped so far."""
        return self.num_taken + len(self.running) + len(self.waiting)

    def begin(self, *, task: Mapping[str, int]) -> GroupNumber:
        """Return the number of the next group; ``task`` says where it stands in the tasksets."""
        number, self.num_begun = self.num_begun, self.num_begun + 1
        self.running[number] = dict(task)
        self.versions[number] = self.version
        return number

    def ended(self, number: GroupNumber) -> None:
        """Note that a group was written."""
        del self.running[number]
        self.waiting.add(number)

    def dropped(self, number: GroupNumber) -> None:
        """Note that a running group left nothing: its place is free."""
        del self.running[number], self.versions[number]

    def takeable(self) -> list[GroupNumber]:
        """Return which groups a step would train now: the oldest in the window, one batch."""
        open_ = sorted([*self.running, *self.waiting])
        found: list[GroupNumber] = []
        while open_ and len(found) < self.plan.batch_size:
            last = open_[0] + self.plan.window - 1
            oldest = next((n for n in open_ if n in self.waiting), None)
            if oldest is None or oldest > last:
                break
            found.append(oldest)
            open_.remove(oldest)
        return found

    def num_overtaken(self, numbers: list[GroupNumber]) -> int:
        """Return how many groups that still run are older than the youngest of these."""
        return sum(number < max(numbers, default=0) for number in self.running)

    def take(self, numbers: list[GroupNumber]) -> None:
        """Note that these are trained next."""
        self.waiting.difference_update(numbers)
        self.taken += numbers
        self.num_taken += len(numbers)
        for number in numbers:
            del self.versions[number]

    def loaded(self, version: int, *, is_all: bool = True) -> None:
        """Note what weights the engines have: trained on all that was taken, or on less."""
        self.version = version
        if is_all:
            self.taken.clear()

    def lag(self, trained: int) -> int:
        """Return how many of the optimizer steps so far the oldest open group has not seen."""
        return max((trained - version for version in self.versions.values()), default=0)

    def state_dict(self) -> dict[str, Any]:
        """Return the groups, as json can hold them."""
        return {
            **asdict(self.widest),
            "num_begun": self.num_begun,
            "num_taken": self.num_taken,
            "running": [[number, task] for number, task in self.running.items()],
            "waiting": [[number, self.versions[number]] for number in sorted(self.waiting)],
            "taken": list(self.taken),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; what ran begins again, with the weights that the engines have then."""
        self.num_begun, self.num_taken = state["num_begun"], state["num_taken"]
        self.running = {number: dict(task) for number, task in state["running"]}
        self.waiting = {number for number, _ in state["waiting"]}
        self.taken = list(state["taken"])
        self.versions = dict(state["waiting"])
        self.versions |= dict.fromkeys(self.running, self.version)
        self._earlier = self.plan.or_wider(FlightPlan.before(state))
        self._num_earlier = self.num_begun


def name_of_group(number: GroupNumber, *, batch_size: int) -> tuple[str, int]:
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


def names_of_ended(state: Mapping[str, Any]) -> list[str]:
    """Return the names of the groups that waited or were taken when a state was written.

    >>> flight = Flight(FlightPlan(batch_size=8, capacity=16, window=1))
    >>> numbers = [flight.begin(task={}) for _ in range(10)]
    >>> flight.ended(9)
    >>> flight.ended(0)
    >>> flight.take([0])
    >>> names_of_ended(flight.state_dict())
    ['1/0', '2/1']
    """
    numbers = [*state["taken"], *(number for number, _ in state["waiting"])]
    own = (name_of_group(number, batch_size=state["batch_size"]) for number in numbers)
    return [f"{batch}/{task}" for batch, task in own]


def has_ended(eid: EID, state: Mapping[str, Any]) -> bool:
    """Return whether an experience is of a group that had ended when a state was written.

    >>> from trinity.common.experience import EID
    >>> flight = Flight(FlightPlan(batch_size=8, capacity=16, window=1))
    >>> numbers = [flight.begin(task={}) for _ in range(10)]
    >>> flight.ended(9)
    >>> [has_ended(EID(batch=2, task=n), flight.state_dict()) for n in (0, 1, 2)]
    [False, True, False]
    """
    batch, task = map(int, group_of(eid).split("/"))
    number = (batch - 1) * int(state["batch_size"]) + task
    return number < state["num_begun"] and all(number != n for n, _ in state["running"])
