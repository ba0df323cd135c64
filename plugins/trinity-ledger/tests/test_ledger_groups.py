"""A ledger that is read by the names of groups, and cut back to those that waited."""

from __future__ import annotations

import pytest
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import StorageUse
from trinity_ledger.storage import SqlStorage


def opened(path) -> SqlStorage:
    config = ExperienceBufferConfig(storage_type="sql", max_retry_times=0)
    return SqlStorage(config, path=path, use=StorageUse(run="a/run"))


def group(batch, task, count=2):
    return [
        Experience(tokens=[1, 2, 3], eid=EID(batch=batch, task=task, run=run))
        for run in range(count)
    ]


def uids(experiences):
    return [experience.eid.uid for experience in experiences]


@pytest.fixture
def ledger(path):
    storage = opened(path)
    for task in (2, 0, 1):
        storage.write(group("1", task))
    storage.read_for(1)
    yield storage
    storage.close()


def test_groups_are_read_in_the_order_in_which_they_are_named(ledger) -> None:
    assert ledger.count_groups(["1/0", "1/2", "9/9"]) == [2, 2, 0]
    assert uids(ledger.read_groups(["1/0", "1/2"])) == ["1/0/0/0", "1/0/1/0", "1/2/0/0", "1/2/1/0"]
    assert ledger.count_groups(["1/0", "1/1"]) == [0, 2]
    assert ledger._ledger.trained(1) == ["1/0/0/0", "1/0/1/0", "1/2/0/0", "1/2/1/0"]


def test_a_claim_of_groups_that_was_lost_on_the_way_is_made_again(ledger, path) -> None:
    ledger.read_groups(["1/0"])
    other = opened(path)
    other.read_for(1)

    assert uids(other.read_groups(["1/2"])) == ["1/2/0/0", "1/2/1/0"]
    assert other.count_groups(["1/0"]) == [2]


def test_it_is_cut_back_to_the_groups_that_waited_whenever_others_were_written(
    ledger, path
) -> None:
    ledger.read_groups(["1/0"])
    state = ledger.state_dict() | {"trained": 1, "waiting": ["1/0", "1/2"]}
    ledger.read_for(2)
    ledger.read_groups(["1/2"])
    ledger.write(group("2", 0))
    went_on = opened(path)

    went_on.load_state_dict(state)

    assert went_on.count_groups(["1/0", "1/1", "1/2", "2/0"]) == [0, 0, 2, 0]
    assert went_on._ledger.trained(1) == ["1/0/0/0", "1/0/1/0"]
    went_on.write(group("1", 1))  # explored again, under its old ids
    assert went_on.count_groups(["1/1"]) == [2]


def test_it_is_cut_back_with_what_a_workflow_kept_apart_below_a_task(ledger, path) -> None:
    ledger.write([*group("2", 0), *group("2", "0-verdicts")])
    ledger.write([*group("2", 1), *group("2", "1-verdicts")])
    went_on = opened(path)

    went_on.load_state_dict(ledger.state_dict() | {"trained": 0, "waiting": ["2/0"]})

    assert went_on.count_groups(["2/0", "2/1"]) == [4, 0]
    assert went_on.available() == 4
