"""What a service keeps: runs, their exchanges, their rewards, and what was taken of them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from trinity.common.experience import EID, Experience
from trinity.errors import DataError
from trinity_serve.ports import RewardRefusedError, RunOverError
from trinity_serve.run_store import SqliteRunStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "buffer" / "serve.db"


@pytest.fixture
def store(path):
    store = SqliteRunStore(path)
    yield store
    store.close()


def said(request: int, agent: str = "") -> Experience:
    return Experience(
        tokens=[1, 2, 30 + request],
        prompt_length=2,
        logprobs=[-0.5],
        info={"agent": agent, "model_version": 3},
        eid=EID(step=request),
    )


def with_calls(store, name: str, *agents: str, task: str = "") -> int:
    """Begin a run with a call of each agent; return its number."""
    number = store.run(name, task=task).number
    for request, agent in enumerate(agents):
        store.keep(number, [said(request, agent)], request=request, agent=agent)
    return number


def tokens_of(due) -> list[int]:
    return [experience.tokens.tolist()[-1] for experience in due.experiences]


def refused(store, name: str, agent: str = "") -> RewardRefusedError:
    with pytest.raises(RewardRefusedError) as caught:
        store.reward(name, 1.0, agent=agent, metrics={})
    return caught.value


def test_a_rewarded_run_is_due_when_it_is_committed_and_not_before(store) -> None:
    with_calls(store, "a", "", "")

    assert store.reward("a", 0.5, metrics={"turns": 2.0}) == (1, 2)
    assert store.due() == []
    assert store.commit() == (1, 2)
    assert store.commit() == (0, 0)

    (run,) = store.due()
    assert (run.name, run.reward, run.metrics, tokens_of(run)) == (
        "a",
        0.5,
        {"turns": 2.0},
        [30, 31],
    )
    assert run.experiences[1].logprobs.tolist() == [-0.5]
    assert run.experiences[1].info["model_version"] == 3


def test_what_was_taken_is_due_no_more_and_after_a_rewind_once_more(store) -> None:
    for step, name in enumerate(["a", "b"], start=1):
        with_calls(store, name, "")
        store.reward(name, 1.0, metrics={})
        store.commit()
        store.taken([run.reward_number for run in store.due()], step=step)
    assert store.due() == []

    store.rewind(1)

    assert [run.name for run in store.due()] == ["b"]


def test_all_of_it_is_there_for_the_next_process(store, path) -> None:
    with_calls(store, "a", "", task="sum")
    with_calls(store, "open", "")
    store.reward("a", 1.0, metrics={})

    again = SqliteRunStore(path)  # as after a kill: nothing was closed

    assert again.commit() == (1, 1)
    assert [run.task for run in again.due()] == ["sum"]
    assert again.run("open").num_calls == 1
    assert again.run("new").number == 3
    again.close()


def test_a_run_is_rewarded_once(store) -> None:
    with_calls(store, "a", "")
    store.reward("a", 1.0, metrics={})

    assert refused(store, "a").why == "given"
    assert refused(store, "a", agent="solver").why == "given"
    assert refused(store, "b").why == "unknown"


def test_a_run_whose_calls_got_no_answer_takes_no_reward(store) -> None:
    store.run("a")

    assert refused(store, "a").why == "empty"


def test_agents_of_a_run_have_rewards_of_their_own(store) -> None:
    with_calls(store, "a", "solver", "judge", "solver")

    assert store.reward("a", 1.0, agent="solver", metrics={}) == (1, 2)
    assert refused(store, "a", agent="solver").why == "given"
    assert refused(store, "a", agent="cook").agents == ("judge", "solver")
    assert store.run("a").rewarded_agents == {"solver"}
    assert store.run("a").state == "open"
    assert store.reward("a", 0.0, metrics={}) == (1, 1)

    store.commit()
    assert [(run.agent, tokens_of(run)) for run in store.due()] == [
        ("solver", [30, 32]),
        ("", [31]),
    ]


def test_silent_runs_are_dropped_and_those_with_a_reward_stay(store) -> None:
    with_calls(store, "silent", "")
    with_calls(store, "rewarded", "")
    with_calls(store, "half", "solver", "judge")
    store.reward("rewarded", 1.0, metrics={})
    store.reward("half", 1.0, agent="solver", metrics={})

    assert store.drop(before=0.0) == []
    assert store.drop(before=1e12) == [1, 3]

    assert refused(store, "silent").why == "dropped"
    assert store.run("silent").state == "dropped"
    assert store.commit() == (2, 2)
    assert store.counts() == {
        "open": 0,
        "rewarded": 0,
        "due": 2,
        "taken": 0,
        "set_aside": 0,
        "dropped": 1,
    }


def test_who_gives_no_name_has_one_open_run_after_the_other(store) -> None:
    first = store.unnamed("key")
    store.keep(first.number, [said(0)], request=0, agent="")

    assert store.unnamed("key").number == first.number
    assert store.unnamed("other").number != first.number
    assert store.latest("key") == first.name
    store.reward(first.name, 1.0, metrics={})
    assert store.unnamed("key").name == "auto-key-3"
    assert store.latest("nobody") == ""


def test_a_call_that_is_stored_twice_is_refused_whole(store) -> None:
    number = with_calls(store, "a", "")

    with pytest.raises(DataError, match="UNIQUE"):
        store.keep(number, [said(0)], request=0, agent="")

    assert store.run("a").num_calls == 1


def test_many_threads_store_at_once(store) -> None:
    number = store.run("a").number

    def keep(first: int) -> None:
        for request in range(first, first + 20):
            store.keep(number, [said(request)], request=request, agent="")

    threads = [threading.Thread(target=keep, args=(20 * place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.reward("a", 1.0, metrics={}) == (number, 80)


def committed(store, *names: str, task: str = "") -> None:
    for name in names:
        with_calls(store, name, "", task=task)
        store.reward(name, 1.0, metrics={})
    store.commit()


def taken_in(store, step: int) -> list[str]:
    due = store.due()
    store.taken([run.reward_number for run in due], step=step)
    return [run.name for run in due]


def test_each_commit_is_due_by_itself_also_after_a_rewind(store) -> None:
    committed(store, "a", "b")
    committed(store, "c")

    assert [taken_in(store, step) for step in (1, 2, 3)] == [["a", "b"], ["c"], []]
    store.rewind(0)
    assert [taken_in(store, step) for step in (1, 2, 3)] == [["a", "b"], ["c"], []]


def test_what_fails_twice_is_set_aside_and_only_its_group(store) -> None:
    with_calls(store, "poison", "", task="sum")
    store.reward("poison", 1e30, metrics={})
    committed(store, "a", "b")
    committed(store, "later")

    whole = store.due()
    store.taken([run.reward_number for run in whole], step=1)
    assert not store.failed([run.reward_number for run in whole])

    (poison,) = store.due()  # alone, as the commit failed whole
    store.taken([poison.reward_number], step=1)
    assert poison.name == "poison"
    assert store.failed([poison.reward_number])
    assert [taken_in(store, step) for step in (1, 2, 3)] == [["a", "b"], ["later"], []]
    assert store.counts()["set_aside"] == 1
    assert store.counts()["due"] == 0


def test_a_reply_is_kept_no_more_once_its_agent_or_its_run_has_a_reward(store) -> None:
    number = with_calls(store, "a", "planner", "solver")
    store.reward("a", 1.0, agent="planner", metrics={})

    with pytest.raises(RunOverError):
        store.keep(number, [said(2, "planner")], request=2, agent="planner")
    with pytest.raises(RunOverError):
        store.touch(number, agent="planner")
    store.keep(number, [said(3, "solver")], request=3, agent="solver")
    store.reward("a", 0.0, metrics={})
    with pytest.raises(RunOverError) as caught:
        store.keep(number, [said(4, "cook")], request=4, agent="cook")

    assert caught.value.run.state == "rewarded"
    assert store.commit() == (2, 3)
    assert [tokens_of(run) for run in store.due()] == [[30], [31, 33]]


def test_a_run_that_is_rewarded_while_silent_ones_are_dropped_keeps_its_replies(store) -> None:
    with_calls(store, "a", "")
    writing, is_first = store._file.writing, [True]

    @contextmanager
    def after_a_reward(**how):
        if is_first.pop() if is_first else False:
            store.reward("a", 1.0, metrics={})
        with writing(**how):
            yield

    store._file.writing = after_a_reward

    assert store.drop(before=1e12) == []
    assert store.commit() == (1, 1)
    assert [tokens_of(run) for run in store.due()] == [[30]]


def test_a_run_that_is_being_answered_is_not_dropped(store) -> None:
    silent, answered = with_calls(store, "silent", ""), with_calls(store, "answered", "")
    long_silent = with_calls(store, "called again", "")
    since = time.time()
    store.touch(long_silent, agent="")

    assert store.drop(before=since, spared=[answered]) == [silent]


def test_the_last_run_of_somebody_may_have_a_name(store) -> None:
    store.unnamed("ann")
    store.run("ticket", owner="ann")
    store.run("other", owner="bob")

    assert store.latest("ann") == "ticket"
    store.touch(store.unnamed("ann").number, agent="")
    assert store.latest("ann") == "auto-ann-1"
    assert store.unnamed("ann").name == "auto-ann-1"


def test_the_runs_of_another_service_are_refused(path) -> None:
    SqliteRunStore(path, service="own", directory="runs/a").close()

    whose = r"another service, with the run directory runs/a. Set explorer\.db_url to a"
    with pytest.raises(DataError, match=whose):
        SqliteRunStore(path, service="another", directory="runs/b")
    SqliteRunStore(path, service="own", directory="runs/moved").close()


def test_a_file_that_another_process_has_is_refused(tmp_path) -> None:
    path = tmp_path / "serve.db"
    holds = (
        "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", holds, f"{path}.lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DataError, match=r"another trinity serve uses .*\. End it"):
            SqliteRunStore(path)
        other.kill()
        other.wait()

    SqliteRunStore(path).close()


def test_another_file_is_left_alone(tmp_path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE notes (text TEXT)")
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to have been one " * 20)

    with pytest.raises(DataError, match=r"is not a file of trinity serve.* explorer\.db_url"):
        SqliteRunStore(other)
    with pytest.raises(DataError, match="file is not a database"):
        SqliteRunStore(text)
