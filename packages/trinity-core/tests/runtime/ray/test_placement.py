"""Engines and ranks stand where they have their GPUs together, and the rest is for others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trinity.errors import ConfigError, WorkerLostError
from trinity.runtime.ray import placement
from trinity.runtime.ray.gpu_allocation import (
    Group,
    Host,
    groups_for,
    ranks_left,
    shares_of,
    short_of,
    with_cpus,
)
from trinity.runtime.ray.placement import Placement, lack_line


def idle(*counts):
    return [Host(count, free=count) for count in counts]


def bundles(hosts, *, engines, width, ranks):
    (group,) = groups_for(
        hosts, engine=float(width), num_engines=engines, trainer=1.0, num_ranks=ranks
    )
    return [bundle["GPU"] for bundle in group.bundles]


def test_each_engine_has_its_gpus_together_and_the_ranks_have_theirs() -> None:
    (group,) = groups_for(idle(8), engine=2.0, num_engines=2, trainer=1.0, num_ranks=4)

    assert group == Group(
        name="workers",
        strategy="PACK",
        bundles=({"GPU": 2.0}, {"GPU": 2.0}, {"GPU": 4.0}),
        places={
            "engine-0": 0, "runner-0": 0, "engine-1": 1, "runner-1": 1,
            "trainer-0": 2, "trainer-1": 2, "trainer-2": 2, "trainer-3": 2,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "engines", "width", "ranks"),
    [
        (idle(8), 2, 2, 4),
        (idle(8, 8), 2, 2, 8),  # a whole machine, not 4 + 8
        (idle(8, 8), 0, 1, 16),
        (idle(8, 4), 1, 4, 8),
        (idle(2, 2), 3, 1, 1),
        (idle(4, 4, 2), 1, 2, 8),
        (idle(4, 4), 2, 3, 1),
        ([Host(8, free=5), Host(8, free=8)], 2, 2, 8),  # another run has 3
        ([Host(8, free=5)], 2, 2, 1),
        ([Host(8, free=2)], 2, 2, 1),  # waits for the engines' anyway
        ([], 1, 1, 1),
    ],
)
def test_ranks_are_on_one_machine_or_on_whole_ones(hosts, engines, width, ranks) -> None:
    assert ranks_left(hosts, own=engines, width=width) == ranks


def test_ranks_leave_the_gpus_of_engines_that_explorers_start_by_themselves() -> None:
    assert ranks_left([Host(8, free=8)], own=0, width=1, others=1) == 7
    assert ranks_left([Host(8, free=7)], own=0, width=1, others=1) == 7  # it has begun


@pytest.mark.parametrize(
    ("hosts", "engines", "width", "ranks", "expected"),
    [
        (idle(8, 8), 2, 2, 8, [2, 2, 8]),
        (idle(8, 8), 2, 2, 12, [2, 2, 8, 4]),  # asked for in so many words
        (idle(8, 8), 1, 4, 1, [4, 1]),
        (idle(4, 4), 0, 1, 8, [4, 4]),
        ([Host(8, free=0)], 1, 2, 4, [2, 4]),  # as it will be once others end
    ],
)
def test_ranks_that_span_machines_stand_on_the_emptiest_first(
    hosts, engines, width, ranks, expected
) -> None:
    assert bundles(hosts, engines=engines, width=width, ranks=ranks) == expected


def test_an_engine_that_no_machine_can_hold_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ConfigError) as refused:
        bundles(idle(2, 4, 2), engines=2, width=4, ranks=0)

    assert str(refused.value) == (
        "2 engines x 4 GPUs of one machine each do not fit on the cluster's machines of 4 + 2 + 2 "
        "GPUs: 1 do. Lower explorer.rollout_model.tensor_parallel_size or engine_num."
    )


def test_without_gpus_engines_and_ranks_are_spread_and_neighbours_stay_together() -> None:
    engines, trainer = groups_for(idle(0, 0), engine=0.0, num_engines=3, trainer=0.0, num_ranks=5)

    assert (engines.strategy, trainer.strategy) == ("SPREAD", "SPREAD")
    assert [engines.places[f"engine-{n}"] for n in range(3)] == [0, 1, 0]
    assert [engines.places[f"runner-{n}"] for n in range(3)] == [0, 1, 0]
    assert [trainer.places[f"trainer-{n}"] for n in range(5)] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_without_gpus_rooms_that_share_memory_are_all_on_one_machine(ranks) -> None:
    options = {"engine": 0.0, "num_engines": 2, "trainer": 0.0, "is_together": True}

    (group,) = groups_for(idle(0, 0), num_ranks=ranks, **options)

    trainer = ["trainer"] if ranks == 1 else ["trainer-0", "trainer-1"]
    assert (group.strategy, len(group.bundles)) == ("STRICT_PACK", 1)
    assert sorted(group.places) == ["engine-0", "engine-1", "runner-0", "runner-1", *trainer]
    assert set(group.places.values()) == {0}
    assert groups_for(idle(0), num_ranks=ranks, **options) == []  # there is no other one


@pytest.mark.parametrize(("hosts", "engines", "ranks"), [(1, 3, 4), (3, 1, 1)])
def test_where_nothing_can_be_spread_nothing_is_reserved(hosts, engines, ranks) -> None:
    assert (
        groups_for(
            idle(*[0] * hosts), engine=0.0, num_engines=engines, trainer=0.0, num_ranks=ranks
        )
        == []
    )


@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 4))
def test_whatever_is_chosen_fits_onto_the_machines(counts, engines) -> None:
    hosts = idle(*counts)
    shares = shares_of(
        sum(counts),
        trains=True,
        num_engines=engines,
        num_ranks=ranks_left(hosts, own=engines, width=1),
    )

    (group,) = groups_for(
        hosts,
        engine=shares.engine,
        num_engines=engines,
        trainer=shares.trainer,
        num_ranks=shares.num_ranks,
    )

    left = list(map(float, counts))
    for bundle in sorted((each["GPU"] for each in group.bundles), reverse=True):
        place = min(
            (n for n, free in enumerate(left) if free >= bundle - 1e-9), key=left.__getitem__
        )
        left[place] -= bundle
    assert {f"engine-{n}" for n in range(engines)} < group.places.keys()
    assert not short_of([group], hosts=[Host(count, free=0) for count in counts])


def test_a_run_whose_machine_is_gone_does_not_wait_for_it(monkeypatch) -> None:
    """All workers are started anew then, and what can never fit is refused with the arithmetic."""
    hosts = [Host(4, free=0), Host(4, free=4)]
    monkeypatch.setattr(placement, "hosts_of_cluster", lambda: hosts)
    monkeypatch.setattr(placement, "_state", lambda made: made)
    (group,) = groups_for(hosts, engine=2.0, num_engines=2, trainer=1.0, num_ranks=4)
    own = Placement()
    own._groups = [(group, "PENDING")]
    assert "It goes on once others end" in own.lack()

    hosts.pop()
    with pytest.raises(WorkerLostError) as lost:
        own.lack()

    assert str(lost.value) == (
        "the process of engine-0 was lost: a machine is gone: 2 + 2 + 4 GPUs were counted, each "
        "number on one machine, and the machines that are left have 4"
    )
    own._groups = [(group, "CREATED")]
    assert own.lack() == ""


@pytest.fixture
def groups(monkeypatch):
    """Return the groups of a cluster, by job and name, which Ray may remove while one waits."""
    clock = SimpleNamespace(now=0.0, slept=[])
    there = {"02": "trinity-aa/11/workers", "03": "trinity-bb/11/workers", "04": "somebody-s"}

    def table():
        return {
            job: {"name": name, "placement_group_id": 28 * "f" + 6 * "0" + job, "state": "CREATED"}
            for job, name in there.items()
        }

    def sleep(seconds):
        clock.now += seconds
        if clock.now > clock.removed_at:
            there.pop("02", None)

    clock.removed_at = 3.0
    util = SimpleNamespace(placement_group_table=table)
    monkeypatch.setattr(placement, "ray", SimpleNamespace(util=util))
    monkeypatch.setattr(placement, "_ended_jobs", lambda: {"00000002"})
    monkeypatch.setattr(placement, "check_ray", lambda: None)
    fake = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(placement, "time", fake)
    return clock


def test_who_counts_what_is_free_waits_for_the_groups_of_a_run_that_was_killed(groups) -> None:
    """Those of another run and of somebody else are theirs."""
    placement.await_ended_groups("trinity-cc")

    assert groups.now == pytest.approx(3.0 + placement.RETURNED_S, abs=0.2)
    placement.await_ended_groups("trinity-cc")
    assert groups.now == pytest.approx(3.0 + placement.RETURNED_S, abs=0.2)  # nothing is left


def test_groups_that_ray_does_not_remove_are_named_and_waited_for_no_longer(groups, caplog) -> None:
    groups.removed_at = float("inf")

    placement.await_ended_groups("trinity-cc")

    assert groups.now == pytest.approx(placement.ENDED_S + placement.RETURNED_S, abs=0.2)
    (line,) = caplog.messages
    assert line.startswith("Ray has not removed trinity-aa/11/workers: ")


@pytest.mark.parametrize(
    ("sizes", "counts", "fits"),
    [
        ([2.0, 2.0], [3, 1], False),  # 4 GPUs, and one machine has two of them together
        ([4.0], [2, 2], False),
        ([0.33, 0.33, 0.33], [1], True),
        ([0.1] * 10, [1], True),
        ([0.5, 0.5, 0.5], [1], False),
        ([1.0, 0.5, 0.5], [1, 1], True),
        ([1.0], [], False),
        ([], [], True),  # without GPUs any machine will do
    ],
)
def test_what_never_fits_is_known_from_the_machines_that_are_left(sizes, counts, fits) -> None:
    group = Group("workers", "PACK", tuple({"GPU": size} for size in sizes))

    assert (not short_of([group], hosts=idle(*counts))) is fits


def test_what_the_cluster_lacks_is_told_with_what_it_has_and_what_to_change() -> None:
    waiting = [Group("workers", "PACK", ({"GPU": 2.0}, {"GPU": 0.5}))]

    assert lack_line(waiting, hosts=[Host(8, free=1), Host(4, free=0)]) == (
        "the run waits for GPUs. It asks for 2 + 0.5, each number on one machine; the cluster's "
        "machines have 8 (1 free) + 4 (0 free). It goes on once others end: ray status says who "
        "has them. Or stop it, and lower explorer.rollout_model.engine_num, tensor_parallel_size "
        "or trainer.num_ranks."
    )
    assert "places on several machines" in lack_line([Group("engines", "SPREAD", ())], hosts=[])


def test_in_a_ray_of_others_an_engine_and_a_rank_reserve_a_cpu_each_where_they_stand() -> None:
    on_gpus = groups_for(idle(8), engine=2.0, num_engines=2, trainer=1.0, num_ranks=4)
    (group,) = with_cpus(on_gpus, num_engines=2, num_ranks=4)

    assert group.bundles == (
        {"GPU": 2.0, "CPU": 1.0}, {"GPU": 2.0, "CPU": 1.0}, {"GPU": 4.0, "CPU": 4.0},
    )  # fmt: skip
    assert group.places == on_gpus[0].places


def test_without_gpus_a_cpu_is_reserved_for_each_engine_and_rank_and_none_for_a_runner() -> None:
    here = groups_for(idle(0), engine=0.0, num_engines=2, trainer=0.0, num_ranks=1)
    (group,) = with_cpus(here, num_engines=2, num_ranks=1)

    assert group == Group(
        name="cpus",
        strategy="PACK",
        bundles=({"CPU": 1.0},) * 3,
        places={"engine-0": 0, "runner-0": 0, "engine-1": 1, "runner-1": 1, "trainer": 2},
    )
    spread = groups_for(idle(0, 0), engine=0.0, num_engines=3, trainer=0.0, num_ranks=1)
    engines, trainer = with_cpus(spread, num_engines=3, num_ranks=1)
    assert [bundle["CPU"] for bundle in engines.bundles] == [2.0, 1.0]
    assert (trainer.places, trainer.bundles) == ({"trainer": 0}, ({"CPU": 1.0},))


def test_a_run_waits_for_the_cpus_that_another_run_holds_and_says_so() -> None:
    groups = with_cpus([], num_engines=1, num_ranks=1)
    held = [Host(0, free=0, cpus=2, free_cpus=1)]

    assert short_of(groups, hosts=held) == ""
    assert short_of(groups, hosts=held, is_free=True) == "CPU"
    assert lack_line(groups, hosts=held) == (
        "the run waits for CPUs. It asks for 1 + 1, each number on one machine; the cluster's "
        "machines have 2 (1 free). It goes on once others end: ray status says who has them. Or "
        "stop it, and lower explorer.rollout_model.engine_num or trainer.num_ranks."
    )
