"""What a strategy may read: only rows that are ready, and never by waiting."""

from __future__ import annotations

from trinity.buffer.queue import QueueStorage
from trinity.common.config import ExperienceBufferConfig
from trinity.common.sync_policy import Consume, Frees, SyncPolicy
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.extend import KINDS
from trinity.runtime.plugin_adapter import adapted_part
from trinity.runtime.ready import ReadyRows
from trinity_algorithms.replay.priority import LinearDecay
from trinity_algorithms.replay.storage import ReplayStorage
from trinity_testing.builders import an_experience

ROUNDS = SyncPolicy(style="", consume=Consume.ROUNDS, max_active=9, pull_every=2)
ROWS = SyncPolicy(style="", consume=Consume.ROWS, max_active=9, frees=Frees.TRAIN_STEP)


class Buffered:
    """A storage and its source, and what rollout steps write."""

    def __init__(self, storage, *, policy=ROUNDS, batch=4):
        self.storage = storage
        self.buffer = RolloutBuffer(policy, batch=batch, gives_again=storage.gives_again)
        self.source = ReadyRows(storage, self.buffer)
        self._num_rows = 0

    def step(self, count, *, version=0):
        """Leave so many rows, which are numbered from 0 in the order of writes."""
        first, self._num_rows = self._num_rows, self._num_rows + count
        info = {"model_version": version}
        self.storage.write(
            [an_experience(run=run, info=info) for run in range(first, first + count)]
        )
        self.buffer.finish(self.buffer.begin().number, count)

    def read(self, count, **given):
        """Return the numbers of the rows of a train step; None: there are none."""
        self.buffer.batch_trained()
        try:
            return runs(self.source.read(count, timeout_s=0, **given))
        except StopIteration:
            return None

    @property
    def left(self):
        return {number: one.left for number, one in self.buffer.slots.items()}


class Forgetful:
    """A plugin's storage, which cannot drop anything before it is read."""

    def __init__(self):
        self.rows = []

    def write(self, rows):
        self.rows += rows

    def read(self, count, *, timeout_s, min_model_version=0):
        self.rows = [row for row in self.rows if row.info["model_version"] >= min_model_version]
        taken, self.rows = self.rows[:count], self.rows[count:]
        if not taken:
            raise StopIteration
        return taken

    def available(self):
        return len(self.rows)


def runs(experiences):
    return [experience.eid.run for experience in experiences]


def a_queue():
    return whole(QueueStorage(ExperienceBufferConfig()))


def a_replay_buffer(cooldown):
    replay = {"enable": True, "reuse_cooldown_time": cooldown}
    config = ExperienceBufferConfig(replay_buffer=replay)
    return whole(ReplayStorage(config, priority_fn=LinearDecay()))


def whole(storage):
    can = KINDS["storage"].abilities_in(type(storage))
    return adapted_part(storage, "storage", can=can, name="buffer")


# --- rounds -----------------------------------------------------------------------------------


def test_rows_of_later_rounds_stay() -> None:
    rows = Buffered(a_queue())
    for count in (2, 1, 4):
        rows.step(count)
    rows.source.last = 2  # of the round

    assert rows.source.available() == 3
    assert rows.read(4) == [0, 1, 2]
    assert rows.read(4) is None
    assert rows.storage.available() == 4
    assert rows.left == {1: 0, 2: 0, 3: 4}


def test_rows_of_later_rounds_stay_where_older_ones_were_dropped_as_too_old() -> None:
    rows = Buffered(a_queue())
    rows.step(3, version=0)
    rows.step(4, version=1)
    rows.step(5, version=2)
    rows.source.last = 2

    assert rows.read(4, min_model_version=1) == [3, 4, 5, 6]  # not 7, which is of the next round
    assert rows.left == {1: 0, 2: 0, 3: 5}
    assert rows.read(4, min_model_version=1) is None
    rows.source.last = 4
    assert rows.read(4, min_model_version=1) == [7, 8, 9, 10]
    assert rows.left == {1: 0, 2: 0, 3: 1}


def test_a_round_of_which_all_rows_are_too_old_gives_nothing_and_takes_nothing_away() -> None:
    rows = Buffered(a_queue())
    rows.step(3, version=0)
    rows.step(4, version=0)
    rows.step(5, version=2)
    rows.source.last = 2

    assert rows.read(4, min_model_version=2) is None
    assert rows.left == {1: 0, 2: 0, 3: 5}
    assert rows.storage.available() == 5


def test_rows_of_a_later_round_that_are_too_old_are_not_ready_any_more() -> None:
    rows = Buffered(a_queue())
    rows.step(4, version=0)
    rows.step(4, version=0)
    rows.step(4, version=0)
    rows.step(4, version=3)
    rows.source.last = 2
    rows.read(4, min_model_version=3)

    assert rows.left == {1: 0, 2: 0, 3: 0, 4: 4}


def test_a_storage_that_drops_while_it_is_read_is_counted_exactly() -> None:
    rows = Buffered(whole(Forgetful()), policy=ROWS)
    rows.step(3, version=0)
    rows.step(4, version=1)
    rows.step(5, version=1)

    assert rows.read(4, min_model_version=1) == [3, 4, 5, 6]
    assert (rows.left, rows.storage.available()) == ({3: 5}, 5)
    assert rows.read(4, min_model_version=2) is None
    assert (rows.left, rows.storage.available()) == ({}, 0)


# --- rows across rollout steps ----------------------------------------------------------------


def test_what_is_too_old_is_not_waited_for() -> None:
    rows = Buffered(a_queue(), policy=ROWS)
    rows.step(2, version=1)
    rows.step(1, version=2)

    assert rows.read(3, min_model_version=2) == [2]
    assert rows.source.available() == 0
    rows.step(1, version=2)
    assert rows.read(1, min_model_version=3) is None


def test_each_row_is_read_once_oldest_first_and_frees_its_slot() -> None:
    rows = Buffered(a_queue(), policy=ROWS)
    for count in (3, 2, 4):
        rows.step(count)

    assert rows.read(4) == [0, 1, 2, 3]
    assert rows.left == {2: 1, 3: 4}
    assert rows.read(4) == [4, 5, 6, 7]
    assert rows.read(4) == [8]
    assert rows.left == {}


def test_rows_that_were_written_and_whose_step_has_not_ended_are_not_read() -> None:
    rows = Buffered(a_queue(), policy=ROWS)
    rows.step(2)
    rows.buffer.begin()
    rows.storage.write([an_experience(run=2)])

    assert rows.read(4) == [0, 1]
    assert rows.read(4) is None


def test_what_was_put_back_is_ready_again_and_read_next() -> None:
    rows = Buffered(a_queue(), policy=ROWS)
    rows.step(3)
    rows.step(3)
    batch = rows.source.read(4, timeout_s=0)
    rows.source.put_back(batch)

    assert rows.left == {1: 3, 2: 3}
    assert rows.source.available() == 6
    assert rows.read(4) == [0, 1, 2, 3]


def test_rows_that_the_storage_gave_up_by_itself_are_forgotten_when_it_is_looked_at() -> None:
    rows = Buffered(a_queue(), policy=ROWS)
    rows.step(3)
    rows.step(3)
    rows.storage.read(4, timeout_s=0)

    rows.source.reconcile()

    assert rows.left == {2: 2}


def test_a_part_of_a_batch_that_was_put_back_is_read_with_what_follows() -> None:
    rows = Buffered(a_queue(), policy=ROWS)
    rows.step(3)
    rows.step(3)
    batch = rows.source.read(4, timeout_s=0)
    rows.source.put_back(batch[2:])

    assert rows.left == {1: 1, 2: 3}
    assert rows.read(4) == [2, 3, 4, 5]


# --- a storage that gives rows again ----------------------------------------------------------


def test_a_short_batch_is_filled_up_with_what_was_used() -> None:
    rows = Buffered(a_replay_buffer(0.0))
    rows.step(5)

    assert [rows.read(4), rows.read(4)] == [[0, 1, 2, 3], [4, 0, 1, 2]]
    assert rows.source.available() == 0
    assert rows.left == {1: 0}


def test_rows_of_later_rounds_fill_no_batch_up_by_themselves() -> None:
    rows = Buffered(a_replay_buffer(0.0))
    rows.step(4)
    rows.read(4)
    rows.step(0)
    rows.step(4)
    rows.source.last = 2

    assert rows.source.available() == 0
    assert rows.read(4) is None
    assert rows.left == {1: 0, 2: 0, 3: 4}


def test_a_batch_that_was_filled_up_and_put_back_is_one_batch_again() -> None:
    rows = Buffered(a_replay_buffer(0.0), policy=ROWS)
    rows.step(5)
    rows.read(4)
    rows.buffer.batch_trained()
    batch = rows.source.read(4, timeout_s=0)
    rows.source.put_back(batch)

    assert rows.left == {1: 1}
    assert rows.source.available() == 4


def test_used_rows_that_are_dropped_as_too_old_make_no_fresh_ones_fewer() -> None:
    rows = Buffered(a_replay_buffer(0.0))
    rows.step(4, version=0)
    rows.read(4)  # they can be had again
    rows.step(4, version=2)

    assert rows.read(4, min_model_version=2) == [4, 5, 6, 7]


def test_without_reuse_a_short_batch_stays_short() -> None:
    rows = Buffered(a_replay_buffer(None))
    rows.step(5)

    assert [len(rows.read(4)) for _ in range(2)] == [4, 1]
