"""A signal is noted, whatever the run does at that moment."""

from __future__ import annotations

import os
import signal

import pytest
from trinity.runtime.interrupt import Interrupt


def test_a_signal_in_the_middle_of_a_line_stops_the_run_all_the_same() -> None:
    def say(_text) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    with Interrupt(say) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
