"""A part of a plugin that fails does not take the run with it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity.runtime.parts import Parts


class Monitor:
    def __init__(self, *, breaks=False) -> None:
        self.steps, self.breaks, self.is_closed = [], breaks, False

    def log(self, metrics, *, step):
        if self.breaks:
            raise OSError("no network")
        self.steps.append(step)

    def close(self):
        self.is_closed = True
        if self.breaks:
            raise OSError("no network")


@pytest.fixture
def parts():
    nothing = SimpleNamespace()
    return Parts(
        config=nothing,
        rundir=nothing,
        info=nothing,
        manager=SimpleNamespace(call=lambda *_, **__: []),
        display=nothing,
        interrupt=nothing,
    )


def test_a_monitor_that_fails_is_named_once_and_the_others_go_on(parts, caplog) -> None:
    broken, whole = Monitor(breaks=True), Monitor()
    parts.monitors = {"trainer": [broken, whole]}

    for step in (1, 2):
        parts.record("trainer", {"actor/loss": 1.0}, step=step)

    assert whole.steps == [1, 2]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "the monitor Monitor failed at step 1 and gets no more trainer metrics: OSError: no network"
    )


def test_a_room_that_does_not_close_is_named_and_the_others_are_closed(parts, caplog) -> None:
    broken, whole = Monitor(breaks=True), Monitor()
    parts.monitors = {"trainer": [broken, whole]}

    parts.close()

    assert whole.is_closed
    assert "Monitor did not close: OSError: no network" in caplog.text
