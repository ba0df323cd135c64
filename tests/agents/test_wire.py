"""Over HTTP, with retries, disconnects and abandoned runs, what is trained is what was heard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trinity_serve.endpoint.server import EndpointHost

sys.path.insert(0, str(Path(__file__).parent))
import wire


@pytest.fixture(scope="module")
def room() -> Iterator[EndpointHost]:
    room = EndpointHost()
    yield room
    room.close()


@pytest.mark.parametrize("seed", range(6))  # 500 by command: python tests/agents/wire.py
def test_each_reply_that_an_agent_heard_is_trained_once_as_sampled(room, seed: int) -> None:
    told = wire.play(seed, room)

    assert told.ways


@pytest.mark.acceptance
def test_five_hundred_runs_over_http_train_on_what_was_heard() -> None:
    assert wire.main(["500"]) == 0
