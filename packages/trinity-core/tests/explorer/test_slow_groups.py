"""Which groups are not waited for, and when."""

from __future__ import annotations

from trinity.common.config import ExplorerConfig
from trinity.explorer.flight import Flight, FlightPlan
from trinity.explorer.slow_groups import SlowGroups


def a_flight(*, waiting=()):
    flight = Flight(FlightPlan(batch_size=4, capacity=8, window=1))
    while flight.has_room:
        flight.begin(task={})
    for number in waiting:
        flight.ended(number)
    return flight


def test_the_rest_of_a_batch_is_left_once_enough_of_it_has_waited() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 10.0})
    slow = SlowGroups(config, batch_size=4)

    assert slow.late(a_flight(waiting=[1]), began={}, now=0.0) == []
    assert slow.late(a_flight(waiting=[1, 3]), began={}, now=5.0) == []
    assert slow.late(a_flight(waiting=[1, 3]), began={}, now=14.0) == []
    assert slow.late(a_flight(waiting=[1, 3]), began={}, now=15.0) == [0, 2]


def test_a_batch_waits_anew_for_groups_that_began_again_elsewhere() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 10.0})
    slow = SlowGroups(config, batch_size=4)
    assert slow.late(a_flight(waiting=[1, 3]), began={}, now=5.0) == []
    slow.moved()

    assert slow.late(a_flight(waiting=[1, 3]), began={}, now=15.0) == []
    assert slow.late(a_flight(waiting=[1, 3]), began={}, now=25.0) == [0, 2]


def test_what_does_not_belong_to_the_oldest_batch_is_never_left() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 0.0})
    slow = SlowGroups(config, batch_size=4)

    assert slow.late(a_flight(waiting=[4, 5, 6, 7]), began={}, now=0.0) == []


def test_a_limit_follows_the_mean_after_some_batches() -> None:
    config = ExplorerConfig(dynamic_timeout={"enable": True, "ratio": 3.0, "warmup_min_steps": 2})
    slow, began = SlowGroups(config, batch_size=4), {0: 0.0, 1: 6.0}
    for seconds in (1.0, 3.0):  # 2 s in the mean, so 6 s at most
        slow.ended(seconds)
        assert slow.late(a_flight(), began=began, now=6.5) == []
        slow.stepped()

    assert slow.late(a_flight(), began=began, now=6.5) == [0]


def test_without_either_everything_is_waited_for() -> None:
    slow = SlowGroups(ExplorerConfig(), batch_size=4)

    assert slow.late(a_flight(waiting=[1, 2, 3]), began={0: 0.0}, now=1e9) == []
