"""Weights that the trainer's process packed are copied once for all who come later."""

from __future__ import annotations

from trinity.runtime.ray.weight_sync import RemoteSender


class TrainersRoom:
    """Makes a copy of what was packed each time that it is asked."""

    def __init__(self):
        self.num_copies = 0

    def aside(self):
        return self

    def call_with_payload(self, method, step):
        self.num_copies += 1
        return self.num_copies, f"copy {self.num_copies}"


def test_all_engines_that_come_back_after_a_sync_get_the_one_copy_of_it() -> None:
    worker = TrainersRoom()
    sender = RemoteSender(worker, pack=lambda *told: "a manifest")

    assert [sender.kept(), sender.kept(), sender.snapshot().version] == ["copy 1", "copy 1", 1]
    assert sender.pack() == "a manifest"
    assert [sender.kept(), sender.kept()] == ["copy 2"] * 2
    assert worker.num_copies == 2
