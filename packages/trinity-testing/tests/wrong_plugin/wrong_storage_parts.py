"""Storages, one right, the others with one mistake each."""

import threading
import time

from trinity.common.ports import Storage
from trinity.errors import BufferClosedError


class RightStorage(Storage):
    """Is right: a list under a lock, which a checkpoint holds."""

    def __init__(self, config):
        self.rows = []
        self.changed = threading.Condition()
        self.is_closed = False

    def write(self, experiences):
        with self.changed:
            if self.is_closed:
                raise BufferClosedError("closed")
            self.add(experiences)
            self.changed.notify_all()

    def add(self, experiences):
        self.rows += experiences

    def read(self, count, *, timeout_s, min_model_version=0):
        with self.changed:
            if not self.changed.wait_for(lambda: self.is_ready(count), timeout_s):
                raise TimeoutError(f"{len(self.rows)} of {count} were there in time")
            taken = self.take(count)
        if not taken:
            raise StopIteration
        return taken

    def is_ready(self, count):
        return len(self.rows) >= count or self.is_closed

    def take(self, count):
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def available(self):
        return len(self.rows)

    def waiting(self):
        return list(self.rows)

    def put_back(self, experiences):
        self.rows = [*experiences, *self.rows]

    def close(self):
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


class GivesTheBest(RightStorage):
    """Is right: gives first what has the highest reward."""

    @property
    def order(self):
        return "the highest reward first"

    def take(self, count):
        self.rows.sort(key=lambda row: -row.reward)
        return super().take(count)


class DropsTheLast(RightStorage):
    """Drops the last of what is written in fours."""

    def add(self, experiences):
        self.rows += experiences[:3] if len(experiences) == 4 else experiences


class GivesOneTwice(RightStorage):
    """Keeps the last of five that it gives."""

    def take(self, count):
        taken = self.rows[:count]
        self.rows = self.rows[count - 1 if count == 5 else count :]
        return taken


class GivesTheNewest(RightStorage):
    """Gives the batch first that was written last, of batches of four."""

    def add(self, experiences):
        self.rows = [*experiences, *self.rows] if len(experiences) == 4 else self.rows + experiences


class ForgetsTheMask(RightStorage):
    """Leaves out which tokens are the model's own."""

    def add(self, experiences):
        for experience in experiences:
            experience.action_mask = None
        super().add(experiences)


class TakesTooEarly(RightStorage):
    """Takes out what is there, and then finds that it is too few."""

    def read(self, count, *, timeout_s, min_model_version=0):
        is_short = len(self.rows) < count and not self.is_closed and timeout_s < 1
        if is_short and len(self.rows) == 2:
            self.rows = []
        return super().read(count, timeout_s=timeout_s)


class WakesNobody(RightStorage):
    """Looks at what is there once, and once more at the end of the time."""

    def read(self, count, *, timeout_s, min_model_version=0):
        limit = time.monotonic() + timeout_s
        while not self.is_ready(count) and time.monotonic() < limit:
            with self.changed:
                if not self.is_closed:
                    self.changed.wait_for(lambda: self.is_closed, limit - time.monotonic())
        return super().read(count, timeout_s=0)


class NeverEnds(RightStorage):
    """Raises a TimeoutError where it is closed and empty."""

    def take(self, count):
        if not self.rows:
            raise TimeoutError("nothing")
        return super().take(count)


class WaitsForOne(RightStorage):
    """Names all but the first as waiting."""

    def waiting(self):
        return list(self.rows[1:])


class PutsBackLast(RightStorage):
    """Puts back behind all that waits."""

    def put_back(self, experiences):
        self.rows = [*self.rows, *experiences]


class HasNoLock(RightStorage):
    """Reads, thinks, and writes what it thought, with no lock between writers."""

    def write(self, experiences):
        if self.is_closed:
            raise BufferClosedError("closed")
        rows = list(self.rows)
        time.sleep(0.0005)
        self.rows = rows + list(experiences)
        with self.changed:
            self.changed.notify_all()


class ClaimsToCount(RightStorage):
    """Provides counts and does not count."""

    def __len__(self):
        return len(self.rows)


class HalfAState(RightStorage):
    """Gives a state, and does not take it back."""

    def state_dict(self):
        return {"rows": len(self.rows)}
