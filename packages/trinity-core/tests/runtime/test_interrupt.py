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
        stop.at_once(int)()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_first_signal_ends_what_loads_and_only_that() -> None:
    said = []

    def load() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with Interrupt(said.append) as stop, pytest.raises(KeyboardInterrupt):
        stop.at_once(load)()
    with Interrupt(said.append) as stop:
        assert stop.at_once(lambda: 7)() == 7
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested

    assert said == [
        "stopped at once, while the run was loading: the same command goes on",
        "stopping: the step is finished and saved first; Ctrl-C again stops at once",
    ]


def test_what_a_library_makes_of_the_signal_is_the_signal_all_the_same() -> None:
    def load() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ValueError("a validator cannot be built") from error

    with Interrupt(lambda _: None) as stop, pytest.raises(KeyboardInterrupt):
        stop.at_once(load)()


def test_a_second_signal_while_it_loads_says_the_same_as_the_first() -> None:
    said = []

    def load() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with Interrupt(said.append) as stop:
        with pytest.raises(KeyboardInterrupt):
            stop.at_once(load)()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)

    assert said == ["stopped at once, while the run was loading: the same command goes on"] * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_anything_was_loaded_ends_it_and_a_line_says_so(number) -> None:
    said = []

    with Interrupt(said.append), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)

    assert said == ["stopped at once, while the run was loading: the same command goes on"]


def test_a_signal_right_before_the_next_stage_loads_is_not_waited_for() -> None:
    said = []
    with Interrupt(said.append) as stop:
        stop.at_once(int)()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stop.at_once(lambda: pytest.fail("it loads"))()

    assert said == [
        "stopping: the step is finished and saved first; Ctrl-C again stops at once",
        "stopped at once, while the run was loading: the same command goes on",
    ]


@pytest.mark.parametrize(
    ("has_checkpoint", "said"),
    [(True, "goes on from the last checkpoint"), (False, "starts over, as no checkpoint was")],
)
def test_a_second_ctrl_c_names_a_checkpoint_only_where_there_is_one(has_checkpoint, said) -> None:
    told = []
    with Interrupt(told.append) as stop:
        stop.has_checkpoint = lambda: has_checkpoint
        stop.at_once(int)()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    assert said in told[-1]
