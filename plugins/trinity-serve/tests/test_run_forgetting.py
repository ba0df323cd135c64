"""What a service forgets, so that its file does not grow without end."""

from __future__ import annotations

import sqlite3
import time

import pytest
from trinity.common.experience import EID, Experience
from trinity_serve.ports import RewardRefusedError, RunOverError
from trinity_serve.run_store import AT_ONCE, SqliteRunStore

OLD, YOUNG = -3600.0, 3600.0  # seconds from now: of "before", so that all runs are young, or old


@pytest.fixture
def path(tmp_path):
    return tmp_path / "serve.db"


@pytest.fixture
def store(path):
    store = SqliteRunStore(path)
    yield store
    store.close()


def said(request: int) -> Experience:
    return Experience(
        tokens=[1, 2, 3], prompt_length=2, logprobs=[-0.5], eid=EID(step=request), info={}
    )


def called(store, name: str, *agents: str) -> int:
    number = store.run(name).number
    for request, agent in enumerate(agents):
        store.keep(number, [said(request)], request=request, agent=agent)
    return number


def taken(store, name: str, *, step: int, agent: str = "") -> None:
    store.reward(name, 1.0, agent=agent, metrics={})
    store.commit()
    store.taken([run.reward_number for run in store.due()], step=step)


def forget(store, *, settled=0, trained=0, before=OLD) -> bool:
    return store.forget(settled=settled, trained=trained, before=time.time() + before)


def num_of(store, table: str) -> int:
    return store._db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]


def test_replies_go_once_every_checkpoint_was_trained_on_them(store) -> None:
    for step, name in enumerate(("a", "b", "c"), 1):
        called(store, name, "", "")
        taken(store, name, step=step)

    assert forget(store, settled=2, trained=3) is False

    assert num_of(store, "exchanges") == 2  # of c, which an older checkpoint may ask for
    assert store.forgotten() == {"experiences": 4, "runs": 0}
    assert store.counts()["taken"] == 3
    assert store.rewind(2) == 0
    assert [run.name for run in store.due()] == ["c"]


def test_what_the_newest_checkpoint_was_trained_on_goes_when_it_is_old(store) -> None:
    called(store, "a", "")
    taken(store, "a", step=5)

    forget(store, trained=4, before=YOUNG)
    forget(store, trained=5, before=OLD)
    assert num_of(store, "exchanges") == 1
    forget(store, trained=5, before=YOUNG)

    assert num_of(store, "exchanges") == 0
    assert (num_of(store, "runs"), num_of(store, "rewards")) == (1, 1)
    forget(store, settled=5, trained=5, before=YOUNG)
    assert (num_of(store, "runs"), num_of(store, "rewards")) == (0, 0)
    assert store.forgotten() == {"experiences": 1, "runs": 1}
    assert store.counts()["taken"] == 1  # as it was said before
    assert store.run("a").state == "open"  # the name can be given again


def test_a_run_that_is_rewarded_late_is_as_old_as_its_reward(store) -> None:
    number = called(store, "a", "")
    store._db.execute(
        "UPDATE runs SET last_call = ? WHERE number = ?", (time.time() - 7200, number)
    )
    taken(store, "a", step=5)

    forget(store, trained=5, before=OLD)
    assert num_of(store, "exchanges") == 1
    forget(store, settled=5, trained=5, before=OLD)

    assert num_of(store, "exchanges") == 0  # every checkpoint was trained on them
    assert (num_of(store, "runs"), num_of(store, "rewards")) == (1, 1)


def test_what_is_rewarded_and_not_trained_stays_however_old(store) -> None:
    for name in ("rewarded", "due", "failed", "open"):
        called(store, name, "")
    store.reward("failed", 1.0, metrics={})
    store.commit()
    for _ in range(2):
        store.failed([run.reward_number for run in store.due()])
    store.reward("due", 1.0, metrics={})
    store.commit()
    store.reward("rewarded", 1.0, metrics={})

    forget(store, settled=99, trained=99, before=YOUNG)

    assert num_of(store, "exchanges") == 4
    assert store.forgotten() == {"experiences": 0, "runs": 0}
    assert [run.name for run in store.due()] == ["due"]
    assert store.commit() == (1, 1)


def test_an_agents_replies_stay_until_their_run_is_over(store) -> None:
    number = called(store, "a", "one", "two", "one")
    taken(store, "a", step=1, agent="one")

    forget(store, settled=1, trained=1, before=YOUNG)
    assert num_of(store, "exchanges") == 3
    assert store.run("a").num_calls == 3  # no number of a call is given twice

    store.drop(before=time.time() + YOUNG)
    forget(store, settled=1, trained=1)
    assert num_of(store, "exchanges") == 0
    with pytest.raises(RunOverError):
        store.touch(number, agent="two")


def test_a_run_whose_replies_are_gone_still_has_its_reward(store) -> None:
    called(store, "a", "")
    taken(store, "a", step=1)
    forget(store, settled=1, trained=1)

    assert store.run("a").state == "rewarded"
    with pytest.raises(RewardRefusedError, match="given"):
        store.reward("a", 1.0, metrics={})


def test_a_start_from_an_older_checkpoint_counts_what_it_cannot_train_again(store) -> None:
    for step, name in enumerate(("a", "b", "c"), 1):
        called(store, name, "")
        taken(store, name, step=step)
    forget(store, settled=2, trained=2)

    assert store.rewind(0) == 2
    assert [run.name for run in store.due()] == ["c"]


def test_a_start_from_an_older_checkpoint_counts_old_runs_too(store) -> None:
    for step, name in enumerate(("a", "b", "c"), 1):
        called(store, name, "")
        taken(store, name, step=step)
    forget(store, settled=1, trained=3, before=YOUNG)  # all are old; the oldest checkpoint: step 1

    assert num_of(store, "exchanges") == 0
    assert store.rewind(1) == 2
    assert store.due() == []


def test_dropped_runs_go_when_they_are_old_and_stay_counted(store) -> None:
    called(store, "a", "")
    store.drop(before=time.time() + YOUNG)

    forget(store, before=OLD)
    assert num_of(store, "runs") == 1
    forget(store, before=YOUNG)

    assert num_of(store, "runs") == 0
    assert store.counts()["dropped"] == 1


def test_much_goes_in_parts(store) -> None:
    for number in range(AT_ONCE + 5):
        called(store, f"run-{number}")
    store.drop(before=time.time() + YOUNG)

    assert forget(store, before=YOUNG) is True
    assert num_of(store, "runs") == 5
    assert forget(store, before=YOUNG) is False
    assert num_of(store, "runs") == 0


def test_runs_without_a_name_are_counted_on_where_earlier_ones_are_forgotten(store) -> None:
    for _ in range(3):
        run = store.unnamed("ann")
        store.keep(run.number, [said(0)], request=0, agent="")
        taken(store, run.name, step=1)
    store._db.execute("UPDATE runs SET last_call = 0, last_reward = 0 WHERE name != 'auto-ann-3'")
    forget(store, settled=1, trained=1)

    assert num_of(store, "runs") == 1
    assert store.unnamed("ann").name == "auto-ann-4"


def test_the_name_of_a_forgotten_run_is_never_given_to_another(store) -> None:
    run = store.unnamed("ann")
    store.keep(run.number, [said(0)], request=0, agent="")
    taken(store, run.name, step=1)
    forget(store, settled=1, trained=1, before=YOUNG)
    assert num_of(store, "runs") == 0

    later = store.unnamed("ann")
    store.keep(later.number, [said(0)], request=0, agent="")

    assert later.name != run.name
    with pytest.raises(RewardRefusedError, match="unknown"):
        store.reward(run.name, 1.0, metrics={})


def test_a_name_that_an_earlier_version_counted_is_not_given_again(path) -> None:
    store = SqliteRunStore(path)
    called(store, "named")
    given = store.unnamed("ann")
    store._db.execute("UPDATE runs SET name = 'auto-ann-0', state = 'rewarded' WHERE number = 2")
    store.close()

    store = SqliteRunStore(path)
    assert given.number == 2
    assert store.unnamed("ann").name == "auto-ann-3"
    store.close()


OF_FORMAT_6 = ("DROP TABLE writes",)
OF_FORMAT_5 = (
    *OF_FORMAT_6,
    "ALTER TABLE exchanges DROP COLUMN digest",
    "ALTER TABLE rewards DROP COLUMN digest",
)
OF_FORMAT_4 = (*OF_FORMAT_5, "ALTER TABLE runs DROP COLUMN last_reward")
OF_FORMAT_3 = (
    "DROP TABLE forgotten",
    "DROP INDEX runs_over",
    "DROP INDEX kept_rewards",
    "ALTER TABLE rewards DROP COLUMN is_forgotten",
)


@pytest.mark.parametrize(
    ("version", "lacks"),
    [(2, OF_FORMAT_4 + OF_FORMAT_3), (3, OF_FORMAT_4), (4, OF_FORMAT_5), (5, OF_FORMAT_6)],
)
def test_a_file_of_an_earlier_format_is_used_as_it_is(path, version, lacks) -> None:
    store = SqliteRunStore(path)
    called(store, "a", "")
    taken(store, "a", step=1)
    store.close()
    with sqlite3.connect(path) as db:
        for statement in (*lacks, f"PRAGMA user_version = {version}"):
            db.execute(statement)
    db.close()

    store = SqliteRunStore(path)
    assert store.counts()["taken"] == 1
    forget(store, settled=1, trained=1)
    assert store.forgotten() == {"experiences": 1, "runs": 0}
    store.close()
    SqliteRunStore(path).close()


def test_a_kill_amid_forgetting_leaves_all_or_nothing_of_it(path) -> None:
    store = SqliteRunStore(path)
    called(store, "a", "", "")
    taken(store, "a", step=1)
    store._db.execute(
        "CREATE TRIGGER kill BEFORE UPDATE ON rewards BEGIN SELECT RAISE(ABORT, 'now'); END"
    )
    with pytest.raises(Exception, match="now"):
        forget(store, settled=1, trained=1)
    assert num_of(store, "exchanges") == 2
    assert store.forgotten() == {"experiences": 0, "runs": 0}
    store.close()
