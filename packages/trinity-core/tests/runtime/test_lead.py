"""How far an explorer with a lead goes, and when its weights change: pure decisions."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from trinity.common.config import SynchronizerConfig
from trinity.runtime.lead import LeadOfExplorer, LeadOfTrainer, Standing, lead_of


def standing(**given) -> Standing:
    given = {"begun": 0, "explored": 0, "trained": 0, "pulled": 0} | given
    return Standing(**({"first_open": given["explored"] + 1} | given))


@pytest.mark.parametrize(
    ("most_open", "first_open", "last"),
    [(0, 1, 1), (1, 1, 2), (2, 1, 3), (1, 4, 5)],
)
@pytest.mark.parametrize("kind", [LeadOfExplorer, LeadOfTrainer])
def test_a_step_begins_while_at_most_l_older_ones_are_open(
    kind, most_open, first_open, last
) -> None:
    now = standing(begun=4, explored=3, first_open=first_open)

    assert kind(1, most_open).last_step(now) == last


@pytest.mark.parametrize("kind", [LeadOfExplorer, LeadOfTrainer])
def test_where_several_steps_make_a_batch_no_side_waits_for_the_other_for_ever(kind) -> None:
    too_few = standing(begun=2, explored=2, first_open=1)

    assert kind(1, 0).last_step(too_few) == 3
    assert kind(1, 0).last_step(standing(begun=2, explored=2, first_open=1, can_train=True)) == 1


@pytest.mark.parametrize(
    ("interval", "given", "syncs", "last"),
    [
        # nothing newer: the explorer passes its questions
        (1, {"begun": 1, "explored": 1, "first_open": 1, "can_train": True}, False, 3),
        # newer, and a step is on its way: it is the last one before the question
        (1, {"begun": 2, "explored": 1, "trained": 1}, False, 2),
        (2, {"begun": 3, "explored": 2, "trained": 1, "first_open": 2}, False, 4),
        # it has ended: the question is now
        (1, {"begun": 2, "explored": 2, "trained": 1, "first_open": 2}, True, 2),
        (2, {"begun": 3, "explored": 3, "trained": 1, "first_open": 2}, False, 4),
        # asked already after this step, and trained since: not before the next question
        (2, {"begun": 2, "explored": 2, "trained": 2, "pulled": 1, "synced": 2}, False, 4),
        # no room for another step: what is trained until then comes along
        (1, {"begun": 3, "explored": 3, "trained": 1, "first_open": 1, "can_train": True},
         False, 3),
    ],
)  # fmt: skip
def test_an_explorer_that_decides(interval, given, syncs, last) -> None:
    lead, now = LeadOfExplorer(interval, most_open=2), standing(**given)

    assert (lead.syncs_now(now), lead.last_step(now)) == (syncs, last)


@pytest.mark.parametrize(
    ("interval", "trained", "pulled", "syncs"),
    [(1, 0, 0, False), (1, 1, 0, True), (2, 1, 0, False), (2, 2, 0, True), (2, 3, 2, False),
     (2, 4, 3, True), (3, 4, 2, True)],
)  # fmt: skip
def test_a_trainer_that_decides(interval, trained, pulled, syncs) -> None:
    now = standing(begun=3, explored=2, trained=trained, pulled=pulled)

    assert LeadOfTrainer(interval, most_open=1).syncs_now(now) is syncs


def test_only_the_two_styles_in_which_one_side_decides_have_a_lead() -> None:
    def lead(style):
        sync = SynchronizerConfig(sync_style=style, sync_interval=2, trainer_sync_interval=3)
        return lead_of(
            SimpleNamespace(synchronizer=sync, explorer=SimpleNamespace(max_inflight_batches=4))
        )

    assert lead("fixed") is lead("fully_async") is None
    assert lead("explorer_driven") == LeadOfExplorer(2, most_open=3)
    assert lead("trainer_driven") == LeadOfTrainer(3, most_open=3)


@pytest.mark.parametrize("kind", [LeadOfExplorer, LeadOfTrainer])
@pytest.mark.parametrize(("interval", "most_open"), [(1, 0), (1, 1), (1, 3), (2, 1), (3, 2)])
@pytest.mark.parametrize("train_s", [0.1, 1.0, 3.0])
def test_no_weights_lag_more_than_the_lead_and_the_interval_allow(
    kind, interval, most_open, train_s
) -> None:
    ages = simulated(kind(interval, most_open), train_s=train_s, seed=0)

    assert len(ages) == 60
    assert max(ages) <= most_open + interval - 1


def test_the_lead_is_used_where_the_trainer_is_slow() -> None:
    assert max(simulated(LeadOfTrainer(1, most_open=3), train_s=3.0, seed=0)) == 3


def simulated(lead, *, train_s: float, seed: int) -> list[int]:
    """Return the age of each of 60 batches, one a step, of a run with a clock of its own."""
    dice = random.Random(seed)
    now = explore_until = train_until = 0.0
    begun = explored = trained = pulled = synced = 0
    is_training = False
    versions, ages = {}, []
    last = 0
    while len(ages) < 60:
        if begun > explored and now >= explore_until:
            explored += 1
        if is_training and now >= train_until:
            is_training, trained = False, trained + 1
        if not is_training:  # the driver looks only then
            first_open = min(trained, explored) + 1
            at = standing(
                begun=begun, explored=explored, first_open=first_open, trained=trained,
                pulled=pulled, synced=synced, can_train=explored > trained,
            )  # fmt: skip
            if lead.syncs_now(at):
                pulled, synced = trained, explored
                at = standing(**{**vars(at), "pulled": pulled, "synced": synced})
            last = lead.last_step(at)
        if begun == explored and begun < last:
            begun, explore_until = begun + 1, now + dice.expovariate(1.0)
            versions[begun] = pulled
        if not is_training and explored > trained:
            ages.append(trained - versions[trained + 1])
            is_training, train_until = True, now + train_s
        ends = [explore_until] * (begun > explored) + [train_until] * is_training
        now = min((end for end in ends if end > now), default=now)
    return ages
