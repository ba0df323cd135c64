"""Memory is shared on one machine: workers on several are refused before the first step."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.errors import ConfigError
from trinity.extend import get_manager
from trinity.runtime.ray.placement import check_machines
from trinity.runtime.ray.worker import WorkerFacts


def a_room(name, *, host="alpha", machine="1"):
    return WorkerFacts(
        name=name, node="", host=host, pid=1, digest="", plugins=(), seconds={}, machine=machine
    )


def check(facts, *, method="ipc"):
    config = Config()
    config.synchronizer.sync_method = method
    check_machines(config, get_manager(), facts=facts)


def refusal(*facts):
    with pytest.raises(ConfigError) as refused:
        check(facts)
    return str(refused.value)


def test_rooms_on_one_machine_are_as_they_should_be() -> None:
    runner = a_room("runner-0", host="beta", machine="2")  # gets no weights
    ranks = [a_room("trainer-0"), a_room("trainer-1", host="beta", machine="2")]  # sends none

    check([a_room("trainer"), a_room("engine-0"), runner])
    check([*ranks, a_room("engine-0")])


def test_engines_on_another_machine_are_refused_in_one_sentence() -> None:
    own, other = a_room("engine-0"), a_room("engine-1", host="beta", machine="2")
    third = a_room("engine-2", host="gamma", machine="3")

    assert refusal(a_room("trainer"), own, other) == (
        "synchronizer.sync_method ipc shares memory: trainer is on alpha, and engine-1 is on beta. "
        "Set memory, gloo or nccl, or put all of them on one machine."
    )
    assert "and engine-1 is on beta; 2 engines are such." in refusal(
        a_room("trainer-0"), own, other, third
    )


def test_engines_in_another_container_of_the_same_host_are_refused() -> None:
    assert "engine-0 sees other processes there (another container)." in refusal(
        a_room("trainer"), a_room("engine-0", machine="2")
    )


def test_a_system_without_such_memory_is_refused() -> None:
    assert "alpha, where trainer is, has none that nobody can change" in refusal(
        a_room("trainer", machine=""), a_room("engine-0", machine="")
    )


@pytest.mark.parametrize("method", ["memory", "gloo", "nccl"])
def test_other_methods_reach_any_machine(method) -> None:
    check([a_room("trainer"), a_room("engine-0", host="beta", machine="2")], method=method)


def test_without_a_trainer_nothing_is_shared() -> None:
    check([a_room("engine-0", machine="1"), a_room("engine-1", machine="2")])
