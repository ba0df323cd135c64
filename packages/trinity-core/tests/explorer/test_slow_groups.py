"""Which groups are not waited for, and when."""

from __future__ import annotations

from trinity.common.config import ExplorerConfig
from trinity.common.sync_policy import Consume, SyncPolicy
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.explorer.stragglers import SlowGroups


def a_buffer(*, ready=(), consumes=0):
    """Return one of eight groups, of which these have ended, and the oldest were consumed."""
    policy = SyncPolicy(style="", consume=Consume.GROUPS, max_active=8, window=1)
    buffer = RolloutBuffer(policy, batch=4)
    while buffer.has_slot:
        buffer.begin()
    for number in ready:
        buffer.finish(number, 1)
    for _ in range(consumes):
        buffer.consume_groups()
    return buffer


def test_the_rest_of_a_batch_is_left_once_enough_of_it_has_waited() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 10.0})
    slow = SlowGroups(config, batch_size=4)

    assert slow.late(a_buffer(ready=[1]), began={}, now=0.0) == []
    assert slow.late(a_buffer(ready=[1, 3]), began={}, now=5.0) == []
    assert slow.late(a_buffer(ready=[1, 3]), began={}, now=14.0) == []
    assert slow.late(a_buffer(ready=[1, 3]), began={}, now=15.0) == [0, 2]


def test_a_batch_that_was_consumed_is_no_longer_the_oldest() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 0.0})
    slow = SlowGroups(config, batch_size=4)
    buffer = a_buffer(ready=[0, 1, 2, 3, 4, 7], consumes=1)

    assert slow.late(buffer, began={}, now=0.0) == [5, 6]


def test_a_batch_waits_anew_for_groups_that_began_again_elsewhere() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 10.0})
    slow = SlowGroups(config, batch_size=4)
    assert slow.late(a_buffer(ready=[1, 3]), began={}, now=5.0) == []
    slow.moved()

    assert slow.late(a_buffer(ready=[1, 3]), began={}, now=15.0) == []
    assert slow.late(a_buffer(ready=[1, 3]), began={}, now=25.0) == [0, 2]


def test_what_does_not_belong_to_the_oldest_batch_is_never_left() -> None:
    config = ExplorerConfig(over_rollout={"ratio": 0.5, "wait_after_min": 0.0})
    slow = SlowGroups(config, batch_size=4)

    assert slow.late(a_buffer(ready=[4, 5, 6, 7]), began={}, now=0.0) == []


def test_a_limit_follows_the_mean_after_some_batches() -> None:
    config = ExplorerConfig(dynamic_timeout={"enable": True, "ratio": 3.0, "warmup_min_steps": 2})
    slow, began = SlowGroups(config, batch_size=4), {0: 0.0, 1: 6.0}
    for seconds in (1.0, 3.0):  # 2 s in the mean, so 6 s at most
        slow.ended(seconds)
        assert slow.late(a_buffer(), began=began, now=6.5) == []
        slow.stepped()

    assert slow.late(a_buffer(), began=began, now=6.5) == [0]


def test_without_either_everything_is_waited_for() -> None:
    slow = SlowGroups(ExplorerConfig(), batch_size=4)

    assert slow.late(a_buffer(ready=[1, 2, 3]), began={0: 0.0}, now=1e9) == []
