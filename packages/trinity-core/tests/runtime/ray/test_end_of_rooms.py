"""At the end of a run nothing of it is left in a Ray that goes on, and nobody else's is touched."""

from __future__ import annotations

import ray
import ray.util
from trinity.runtime.ray import cluster

OURS, ANOTHERS = "trinity-1a2b", "trinity-9f9f"


def group(namespace, *, state="CREATED"):
    return {"name": f"{namespace}/77/workers", "state": state}


def test_a_room_that_has_just_ended_keeps_neither_the_others_nor_their_places(monkeypatch) -> None:
    """As after a second Ctrl-C, which leaves the run before its workers are closed."""
    actors = [
        {"name": name, "namespace": f"{namespace}/77"}
        for name, namespace in [("trainer", OURS), ("engine-0", OURS), ("engine-0", ANOTHERS)]
    ]
    groups = {
        "0a" * 18: group(OURS),
        "0b" * 18: group(ANOTHERS),
        "0c" * 18: group(OURS, state="REMOVED"),
        "0d" * 18: group(OURS, state="PENDING"),
        "0e" * 18: group(OURS + "3c"),
    }
    killed, removed = [], []

    def get_actor(name, namespace):
        if name == "trainer":
            raise ValueError("Failed to look up actor")
        return name, namespace

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray.util, "list_named_actors", lambda *, all_namespaces: actors)
    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(ray, "kill", killed.append)
    monkeypatch.setattr(ray.util, "placement_group_table", lambda: groups)
    monkeypatch.setattr(ray.util, "remove_placement_group", lambda gone: removed.append(gone.id))

    cluster._end_workers(OURS)

    assert killed == [("engine-0", f"{OURS}/77")]
    assert [number.hex() for number in removed] == ["0a" * 18, "0d" * 18]
