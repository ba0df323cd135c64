"""No weights lag more than each style promises, whatever is fast, slow, short or evaluated.

A clock of its own, the decisions of the runtime: runs of sixty batches in a moment.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from trinity.runtime.lead import Lead, LeadOfExplorer, LeadOfTrainer, Left, Standing
from trinity.runtime.pace import ByExplorer, ByTrainer, Fixed
from trinity.runtime.record.progress import Progress

BATCH = 4
NUM_BATCHES = 60
KINDS = [LeadOfExplorer, LeadOfTrainer]
# What explore steps leave: a batch, several, a part of one, one that lost runs, anything.
STEPS = [(4,), (8,), (12,), (2,), (1,), (6,), (3, 4), (4, 5, 9), (0, 1, 4, 10)]


@dataclass
class Line:
    """Experiences in the order in which they were written, as a storage in order has them."""

    left: Left = field(default_factory=lambda: Left(batch=BATCH))
    versions: list[int] = field(default_factory=list)  # that made those which are not trained
    ages: list[int] = field(default_factory=list)  # the highest of each batch
    bounds: list[int] = field(default_factory=list)  # as known when it was trained

    def write(self, count: int, *, version: int) -> None:
        self.left = self.left.after(count)
        self.versions += [version] * count

    def train(self, count: int, *, trained: int, bound: int) -> None:
        batch, self.versions = self.versions[:count], self.versions[count:]
        self.ages.append(trained - min(batch))
        self.bounds.append(bound)


@dataclass
class AtOnce:
    """Both sides of a run with a lead; the driver looks only between two optimizer steps."""

    lead: Lead
    steps: tuple[int, ...]
    train_s: float
    seed: int
    eval_interval: int = 0
    line: Line = field(default_factory=Line)

    def run(self) -> Line:
        self.dice, self.progress, self.now = random.Random(self.seed), Progress(), 0.0
        self.begun = self.last = 0
        self.ended: list[int] = []  # what steps left that the driver has not heard of
        self.explores_until = self.trains_until = self.evaluates_until = None
        self.version = 0  # that made the step on its way
        while len(self.line.ages) < NUM_BATCHES:
            if self.trains_until is None:
                self.look()
            self.begin()
            ends = [self.explores_until, self.trains_until, self.evaluates_until]
            self.now = min(end for end in ends if end is not None)
            self.end()
        return self.line

    def look(self) -> None:
        while self.ended:
            count = self.ended.pop(0)
            self.progress.explored += 1
            self.progress.written.append(count)
            if self.eval_interval and self.progress.explored % self.eval_interval == 0:
                self.progress.pulled = self.progress.trained
                self.evaluates_until = self.now + self.dice.expovariate(0.3)
        can_train = self.progress.num_waiting >= BATCH
        if self.evaluates_until is None and self.lead.syncs_now(self.standing(can_train)):
            self.progress.pulled, self.progress.synced = (
                self.progress.trained, self.progress.explored,
            )  # fmt: skip
        self.last = self.begun
        if self.evaluates_until is None:
            self.last = self.lead.last_step(self.standing(can_train))
        if self.eval_interval:
            most = (self.progress.explored // self.eval_interval + 1) * self.eval_interval
            self.last = min(self.last, most)
        if can_train:
            bound = self.lead.most_age(self.line.left)
            self.line.train(BATCH, trained=self.progress.trained, bound=bound)
            self.progress.take_ahead(BATCH)
            self.trains_until = self.now + self.train_s * self.dice.random() * 2

    def standing(self, can_train: bool) -> Standing:
        return Standing.of(self.progress, begun=self.begun, can_train=can_train)

    def begin(self) -> None:
        if self.explores_until is None and self.begun < self.last:
            self.begun, self.version = self.begun + 1, self.progress.pulled
            self.explores_until = self.now + self.dice.expovariate(1.0)

    def end(self) -> None:
        if self.explores_until is not None and self.explores_until <= self.now:
            count = self.dice.choice(self.steps)
            self.line.write(count, version=self.version)
            self.ended.append(count)
            self.explores_until = None
        if self.trains_until is not None and self.trains_until <= self.now:
            self.progress.trained += 1
            self.progress.forget_trained()
            self.trains_until = None
        if self.evaluates_until is not None and self.evaluates_until <= self.now:
            self.evaluates_until = None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("interval", "most_open"), [(1, 0), (1, 1), (1, 3), (2, 1), (3, 2)])
def test_of_sides_that_go_on_by_themselves_no_batch_is_older_than_the_lead_lets_it_be(
    kind, steps, interval, most_open
) -> None:
    for seed, train_s in enumerate((0.1, 1.0, 3.0)):
        for eval_interval in (0, 1, 2, 3):
            lead = kind(interval, most_open)
            line = AtOnce(lead, steps, train_s, seed, eval_interval).run()
            over = [a - b for a, b in zip(line.ages, line.bounds, strict=True)]
            assert max(over) <= 0, (train_s, eval_interval)


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_batch_a_step_the_bound_is_the_lead_and_the_interval(kind) -> None:
    one, three = Left(batch=BATCH).after(4), Left(batch=BATCH).after(12)

    assert [kind(i, lead).most_age(one) for i, lead in [(1, 0), (1, 1), (2, 1), (3, 2)]] == [
        0, 1, 2, 4,
    ]  # fmt: skip
    assert kind(1, 1).most_age(three) == 5  # all but the last batch of two steps
    assert kind(1, 0).most_age(one.after(3)) == 1  # three that wait for another step's


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [4, 12])
def test_the_bound_is_reached_where_the_trainer_is_slow(kind, count) -> None:
    lead = kind(1, 3)

    assert max(AtOnce(lead, (count,), 9.0, 0).run().ages) == lead.most_age(
        Left(batch=BATCH).after(count)
    )


@pytest.mark.parametrize("pace", ["explorer", "trainer"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("interval", [1, 2, 3])
def test_in_turns_no_batch_is_older_than_with_the_shortest_lead(pace, steps, interval) -> None:
    own, kind = {
        "explorer": (ByExplorer(interval, BATCH), LeadOfExplorer),
        "trainer": (ByTrainer(interval, BATCH), LeadOfTrainer),
    }[pace]
    line = in_turns(own, steps, bound=kind(interval, 0).most_age)

    assert all(age <= bound for age, bound in zip(line.ages, line.bounds, strict=True))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("interval", "offset"), [(1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (3, 4)])
@pytest.mark.parametrize("is_at_once", [False, True])
def test_of_fixed_no_batch_is_older_than_the_steps_that_the_offset_and_the_interval_hold(
    steps, interval, offset, is_at_once
) -> None:
    def bound(left: Left) -> int:
        whole, rest = divmod(offset + interval, interval)  # turns, each with a short last batch
        batches = whole * -(-interval * left.most // BATCH) - (-rest * left.most // BATCH)
        return batches - 1

    line = in_turns(Fixed(interval, offset), steps, bound=bound, is_at_once=is_at_once)

    assert all(age <= bound for age, bound in zip(line.ages, line.bounds, strict=True))


def test_of_fixed_with_one_batch_a_step_the_bound_is_reached() -> None:
    ages = [
        max(in_turns(Fixed(interval, offset), (4,), bound=lambda _: 0).ages)
        for interval, offset in [(1, 0), (1, 1), (1, 3), (2, 1)]
    ]

    assert ages == [0, 1, 3, 2]


def in_turns(pace, steps, *, bound, is_at_once=False) -> Line:
    """Return what a run trains in which one side waits for the other, or trains ahead."""
    dice, progress, line = random.Random(0), Progress(), Line()

    def train(count) -> None:
        line.train(count, trained=progress.trained, bound=bound(line.left))
        progress.trained += 1

    while len(line.ages) < NUM_BATCHES:
        version, count = progress.pulled, dice.choice(steps)
        while is_at_once and (ready := pace.num_ready(progress)) >= BATCH and dice.random() < 0.7:
            train(BATCH)
            progress.take_ahead(min(BATCH, ready))
        line.write(count, version=version)
        progress.explored += 1
        progress.written.append(count)
        if pace.begin_turn(progress):
            while progress.num_due and progress.num_due >= pace.num_needed(progress):
                size = min(BATCH, progress.num_due)
                train(size)
                progress.num_due -= size
                if pace.syncs_now(progress, is_turn_over=False):
                    progress.pulled = progress.trained
            if pace.syncs_now(progress, is_turn_over=True):
                progress.pulled = progress.trained
            progress.synced = progress.explored
    return line
