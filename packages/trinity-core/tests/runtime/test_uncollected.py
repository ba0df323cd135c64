"""Parts are imported and built without the collector, and it goes on afterwards."""

from __future__ import annotations

import gc

import pytest
from trinity.runtime.gc_paused import gc_paused


@pytest.fixture(autouse=True)
def a_collector():
    """Leave the collector as it was."""
    was = gc.isenabled()
    gc.enable()
    yield
    gc.enable() if was else gc.disable()


def test_the_collector_rests_inside_the_block_and_goes_on_after_it() -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_where_the_block_fails() -> None:
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_a_block_within_a_block_switches_nothing_on() -> None:
    with gc_paused():
        with gc_paused():
            pass
        assert not gc.isenabled()


def test_it_stays_off_where_somebody_else_switched_it_off() -> None:
    gc.disable()
    with gc_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()
