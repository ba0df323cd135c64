"""What the driver holds of the buffer asks it no more than it must."""

from __future__ import annotations

import pytest
from trinity.runtime.ray.buffer_room import Sampled
from trinity.runtime.ray.remote_parts import RemoteBuffer


class CountedRoom:
    """A buffer's room of ten experiences that counts its calls."""

    def __init__(self):
        self.calls = []
        self.num_due = 0

    def call(self, method, *, num_due=None):
        self.calls.append((method, num_due))
        self.num_due = self.num_due if num_due is None else num_due
        return self.num_due

    def call_with_payload(self, method, step, *, num_due=None):
        self.call(method, num_due=num_due)
        self.num_due -= 4
        eids = tuple(f"{step}/0/{run}/0" for run in range(4))
        sampled = Sampled(
            metrics={},
            eids=eids,
            num_due=self.num_due,
            available=self.num_due,
            counts={"uses": 4 * step},
        )
        return sampled, "a reference"


def test_a_sync_interval_asks_once_what_is_there_and_then_only_samples() -> None:
    room = CountedRoom()
    buffer = RemoteBuffer(room)

    buffer.num_due = 8
    batches = []
    while buffer.available():
        batch, _ = buffer.sample(len(batches) + 1)
        batches.append(batch)

    assert room.calls == [("available", 8), ("sample", None), ("sample", None)]
    assert [len(batch) for batch in batches] == [4, 4]
    assert batches[1].eids == ("2/0/0/0", "2/0/1/0", "2/0/2/0", "2/0/3/0")
    assert buffer.num_due == 0
    assert buffer.counts() == {"uses": 8}


def test_what_the_room_drops_as_too_old_is_not_there_any_more() -> None:
    class OfOldWeights(CountedRoom):
        def call_with_payload(self, method, step, *, num_due=None):
            self.num_due = 0
            raise StopIteration

    buffer = RemoteBuffer(OfOldWeights())
    buffer.num_due = 8
    assert buffer.available() == 8

    with pytest.raises(StopIteration):
        buffer.sample(1)

    assert buffer.available() == 0


def test_a_batch_travels_by_its_reference() -> None:
    buffer = RemoteBuffer(CountedRoom())
    buffer.num_due = 4

    batch, _ = buffer.sample(1)

    assert batch.ref == "a reference"
