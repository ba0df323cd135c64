"""How far an explorer with a lead goes, and when its weights change: pure decisions."""

from __future__ import annotations

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
