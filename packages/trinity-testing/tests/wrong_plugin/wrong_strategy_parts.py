"""Sample strategies, one right, the others with one mistake each."""

import contextlib

from trinity.algorithm import SampleStrategy


class RightStrategy(SampleStrategy):
    """Is right: reads ahead, and says in its state what it holds."""

    def __init__(self):
        self.held = []

    def sample(self, step):
        from trinity.common.experience import Experience

        self.held = [exp if isinstance(exp, Experience) else _back(exp) for exp in self.held]
        try:
            self.held += self.source.read(self.train_batch_size, timeout_s=self.read_timeout_s)
        except StopIteration:
            if not self.held:
                raise
        size = self.train_batch_size
        given, self.held = self.held[:size], self.held[size:]
        return given, {"held": float(len(self.held))}

    def state_dict(self):
        return {"held": [exp.to_dict() for exp in self.held]}

    def load_state_dict(self, state):
        self.held = state["held"]


def _back(row):
    from trinity.common.experience import Experience

    return Experience.from_dict(row)


class Plain(SampleStrategy):
    """Reads what comes next."""

    def sample(self, step):
        return self.read(self.train_batch_size), {}

    def read(self, count):
        return self.source.read(count, timeout_s=self.read_timeout_s)


class DropsOne(Plain):
    """Leaves out one experience of each batch."""

    def sample(self, step):
        return self.read(self.train_batch_size + 1)[:-1], {}


class RepeatsOne(Plain):
    """Fills each batch up with a copy of its first experience."""

    def sample(self, step):
        batch = self.read(self.train_batch_size - 1)
        return [*batch, batch[0]], {}


class ForgetsWhatItHolds(Plain):
    """Reads two batches at once, and its state does not say so."""

    held = ()

    def sample(self, step):
        batch = self.held or self.read(2 * self.train_batch_size)
        size = self.train_batch_size
        self.held = batch[size:]
        return list(batch[:size]), {}


class HalvesBatches(Plain):
    """Gives half of what it was told to give."""

    def sample(self, step):
        return self.read(self.train_batch_size // 2), {}


class GoesOnAfterTheEnd(Plain):
    """Says once that nothing is left, and then gives empty batches."""

    is_over = False

    def sample(self, step):
        if self.is_over:
            return [], {}
        try:
            return super().sample(step)
        except StopIteration:
            self.is_over = True
            raise


class MakesABatchOfNothing(Plain):
    """Takes an empty buffer for a step without experiences."""

    num_given = 0

    def sample(self, step):
        try:
            batch = self.read(self.train_batch_size)
        except StopIteration:
            if self.num_given:
                raise
            return [], {}
        self.num_given += len(batch)
        return batch, {}


class LosesByATimeout(Plain):
    """Reads in two goes, and forgets the first when the second is late."""

    def sample(self, step):
        batch = self.read(self.train_batch_size // 2)
        with contextlib.suppress(StopIteration):
            batch += self.read(self.train_batch_size // 2)
        return batch, {}


class WaitsAnHour(Plain):
    """Waits for an hour, whatever it was told."""

    def read(self, count):
        return self.source.read(count, timeout_s=3600.0)


class MetricIsAWord(Plain):
    """Returns a word as metric."""

    def sample(self, step):
        return self.read(self.train_batch_size), {"order": "as they come"}


class TakesNothingBack(Plain):
    """Forgets what is put back."""

    def put_back(self, experiences):
        pass


class ClaimsAnOrder(Plain):
    """Says that it keeps the order, and gives each batch backwards."""

    def sample(self, step):
        batch, metrics = super().sample(step)
        return batch[::-1], metrics
