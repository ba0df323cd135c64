"""Who works at a ledger, and when an explorer has room for a step."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from trinity.common.experience import EID, Experience
from trinity.errors import CheckpointError, ConfigError
from trinity_ledger.ledger import Ledger
from trinity_ledger.membership import LEASE_S, Member, Membership, Published
from trinity_ledger.sqlite import SqliteDatabase


@pytest.fixture
def database(tmp_path):
    return SqliteDatabase(tmp_path / "ledger.db")


@pytest.fixture
def ledger(database):
    return Ledger(database, name="ledger.db", owner="one")


@pytest.fixture
def presence(database, ledger):
    return Membership(database, is_gone=lambda side: side.pid == 0)


def a_side(name="one", **given):
    values = {"token": "a", "host": "here", "pid": 7, "since": 1.0} | given
    return Member(name=name, **values)


def issue(presence, step, *, side=None, tasks=2, capacity=4, gives=2):
    side = side or a_side()
    return presence.issue(
        side, batch=f"{side.name}:{step}", num_tasks=tasks, capacity=capacity, gives=gives
    )


def write(ledger, step, *, name="one", tasks=2):
    rows = [
        Experience(tokens=[1, 2], eid=EID(batch=f"{name}:{step}", task=task, run=run))
        for task in range(tasks)
        for run in (0, 1)
    ]
    ledger.write(rows)


def first_step_is_claimed(presence, ledger):
    """Let all room be taken by a step that is explored, and claimed by the trainer."""
    presence.enter(a_side(), is_trainer=False)
    presence.want(4)
    assert issue(presence, 1, capacity=2)
    write(ledger, 1)
    return ledger.claim(4, step=1, first=0, may_be_fewer=False)


def test_a_ledger_has_one_trainer(presence) -> None:
    presence.enter(a_side("trainer"), is_trainer=True)

    with pytest.raises(
        ConfigError, match=r"process 7 on here, .*, has been training on this ledger since 19"
    ):
        presence.enter(a_side("trainer", token="b"), is_trainer=True)


@pytest.mark.parametrize("change", [{"pid": 0}, {"state": "stopped"}])
def test_a_trainer_that_is_gone_makes_place(presence, change) -> None:
    presence.enter(a_side("trainer", **change), is_trainer=True)
    presence.enter(a_side("trainer", token="b"), is_trainer=True)

    assert presence.trainer().token == "b"


def test_a_trainer_of_another_machine_that_says_nothing_makes_place(presence, monkeypatch) -> None:
    presence.enter(a_side("trainer"), is_trainer=True)
    later = time.time() + LEASE_S + 1
    monkeypatch.setattr(time, "time", lambda: later)

    presence.enter(a_side("trainer", token="b"), is_trainer=True)

    assert presence.trainer().token == "b"


def test_explorers_have_names_of_their_own(presence) -> None:
    presence.enter(a_side("one"), is_trainer=False)
    presence.enter(a_side("two"), is_trainer=False)

    with pytest.raises(ConfigError, match=r"has been explorer 'two' .* set explorer.name"):
        presence.enter(a_side("two", token="b"), is_trainer=False)
    assert [side.name for side in presence.explorers()] == ["one", "two"]


def test_there_is_room_until_the_capacity_runs_or_waits(presence, ledger) -> None:
    presence.enter(a_side(), is_trainer=False)

    assert issue(presence, 1)
    write(ledger, 1)
    assert issue(presence, 2)  # 2 wait, 2 run
    assert not issue(presence, 3)
    assert presence.in_flight() == (2, 2)


def test_what_is_trained_makes_room_once_its_weights_are_there(presence, ledger) -> None:
    presence.enter(a_side(), is_trainer=False)
    for step in (1, 2):
        issue(presence, step)
        write(ledger, step)
    ledger.claim(4, step=1, first=0, may_be_fewer=False)

    assert not issue(presence, 3)
    presence.publish(Published(version=1, path="weights/v1", digest="d"))
    assert issue(presence, 3)


def test_a_trainer_that_lacks_experiences_makes_room(presence, ledger) -> None:
    presence.enter(a_side(), is_trainer=False)
    presence.want(9)
    for step in (1, 2):
        assert issue(presence, step)
        write(ledger, step)

    assert issue(presence, 3)  # 8 wait, and a step reads 9
    assert not issue(presence, 4)


def test_what_the_trainer_is_training_is_nothing_that_it_lacks(presence, ledger) -> None:
    first_step_is_claimed(presence, ledger)

    assert not issue(presence, 2, capacity=2)  # its weights are on their way
    presence.publish(Published(version=1, path="weights/v1", digest="d"))
    assert issue(presence, 2, capacity=2)


def test_a_trainer_that_publishes_seldom_gets_more_once_it_waits(presence, ledger) -> None:
    first_step_is_claimed(presence, ledger)
    assert not issue(presence, 2, capacity=2)

    presence.want(4)  # trained, and no weights are published after this step
    assert issue(presence, 2, capacity=2)


def test_a_packet_that_cannot_be_read_is_waited_for_again(presence, ledger) -> None:
    claimed = first_step_is_claimed(presence, ledger)
    ledger.drop_broken(claimed[0].packet, step=1)

    assert issue(presence, 2, capacity=2)


def test_who_was_replaced_while_nothing_was_heard_of_it_ends(presence, monkeypatch) -> None:
    first = a_side("trainer", token="a")
    presence.enter(first, is_trainer=True)
    later = time.time() + LEASE_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    presence.enter(a_side("trainer", token="b", pid=8), is_trainer=True)

    with pytest.raises(
        CheckpointError, match=r"another process is trainer of its ledger \(process 8 "
    ):
        presence.heartbeat(first, is_trainer=True)
    assert presence.trainer().token == "b"


def test_who_enters_again_as_the_answer_was_lost_does_not_stand_in_its_own_way(presence) -> None:
    for _ in (1, 2):
        presence.enter(a_side("trainer"), is_trainer=True)
        presence.enter(a_side("one"), is_trainer=False)

    assert presence.trainer().token == "a"


def test_what_undone_weights_made_is_no_newer_than_the_step_that_trains_it(
    ledger, database
) -> None:
    row = Experience(tokens=[1, 2], eid=EID("one:1", 0, 0), info={"model_version": 12})
    ledger.cut_back(10)
    ledger.write([row])  # an explorer had not heard of it
    ledger.claim(1, step=11, first=0, may_be_fewer=False)

    assert database.read(lambda rows: rows.all("SELECT * FROM ages")) == [(11, 0, 0)]


def test_a_task_of_a_dead_explorer_holds_no_place(presence, monkeypatch) -> None:
    for name in ("one", "two"):
        presence.enter(a_side(name), is_trainer=False)
        assert issue(presence, 1, side=a_side(name))
    assert not issue(presence, 2)
    later = time.time() + LEASE_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    presence.heartbeat(a_side("one"), is_trainer=False)

    assert issue(presence, 2)


def test_an_explorer_that_comes_back_takes_the_same_places(presence) -> None:
    presence.enter(a_side(pid=0), is_trainer=False)
    issue(presence, 1)
    presence.enter(a_side(token="b"), is_trainer=False)

    assert presence.in_flight() == (0, 0)
    assert issue(presence, 1)
    assert presence.in_flight() == (0, 2)


def test_what_a_step_left_without_a_group_is_said(presence, ledger, database) -> None:
    presence.enter(a_side(), is_trainer=False)
    issue(presence, 1)
    write(ledger, 1, tasks=1)
    presence.step_ended(a_side(), batch="one:1")

    told = database.read(lambda rows: rows.all("SELECT place, state, outcome FROM tasks"))
    assert sorted(told) == [("0", "done", ""), ("1", "dropped", "nothing was kept of its runs")]


def test_weights_of_steps_that_were_undone_are_forgotten(presence) -> None:
    for version in (1, 2, 3):
        presence.publish(Published(version=version, path=f"v{version}", digest=str(version)))
    presence.publish(Published(version=1, path="v1", digest="again"))

    assert presence.published() == Published(version=1, path="v1", digest="again")


def test_explorers_are_finished_when_all_are(presence, ledger) -> None:
    assert not ledger.are_writers_finished()
    for name in ("one", "two"):
        presence.enter(a_side(name), is_trainer=False)
    presence.heartbeat(replace(a_side("one"), state="finished"), is_trainer=False)
    assert not ledger.are_writers_finished()
    presence.heartbeat(replace(a_side("two"), state="finished"), is_trainer=False)
    assert ledger.are_writers_finished()


def test_a_step_that_is_asked_for_again_does_not_stand_in_its_own_way(presence, ledger) -> None:
    presence.enter(a_side(), is_trainer=False)
    issue(presence, 1)
    write(ledger, 1)

    assert issue(presence, 2)
    assert issue(presence, 2)  # the first answer was lost on the way
    assert not issue(presence, 3)
    assert presence.in_flight() == (2, 2)


def finish(presence, *names, token="a"):
    for name in names:
        is_trainer = name == "trainer"
        side = a_side(name, token=token, state="finished")
        presence.heartbeat(side, is_trainer=is_trainer)


def test_an_explorer_that_was_finished_waits_for_a_trainer_that_goes_on(presence, ledger) -> None:
    finish(presence, "one", "trainer")
    presence.enter(a_side("one", token="b"), is_trainer=False)

    assert presence.trainer().state == "finished before"
    finish(presence, "trainer")
    assert presence.trainer().is_finished


@pytest.mark.parametrize("before", [[], ["one"]])
def test_a_late_or_killed_explorer_ends_with_the_trainer(presence, before) -> None:
    for name in before:
        presence.heartbeat(a_side(name, pid=0), is_trainer=False)
    finish(presence, "trainer")
    presence.enter(a_side("one", token="b"), is_trainer=False)

    assert presence.trainer().is_finished


def test_a_trainer_that_was_finished_waits_for_an_explorer_that_goes_on(presence, ledger) -> None:
    finish(presence, "one", "two", "trainer")
    presence.enter(a_side("trainer", token="b"), is_trainer=True)

    assert not ledger.are_writers_finished()
    presence.enter(a_side("one", token="b"), is_trainer=False)
    assert not ledger.are_writers_finished()
    finish(presence, "one", token="b")
    assert ledger.are_writers_finished()  # two has no more to do


def test_who_was_killed_before_it_told_that_it_is_finished_asks_for_no_more(presence) -> None:
    finish(presence, "one", "trainer")
    presence.enter(a_side("one", token="b"), is_trainer=False, asks_for_more=False)

    assert presence.trainer().is_finished


def test_a_killed_trainer_ends_with_its_explorers(presence, ledger) -> None:
    presence.heartbeat(a_side("trainer", pid=0), is_trainer=True)
    finish(presence, "one", "two")
    presence.enter(a_side("trainer", token="b"), is_trainer=True)

    assert ledger.are_writers_finished()
