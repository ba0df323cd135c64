"""A server that is asked to end while a pass is under way, and what is sent to it meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from trinity_tinker.gradients import GradientTrainer
from trinity_tinker.sampling import Sampling
from trinity_tinker.server import TinkerServer

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 4}
LONG = {"max_tokens": 1500, "stop": []}


@pytest.fixture
def ends_slowly(base, tmp_path, make_client, monkeypatch):
    """Return a context: a server that ends and does not yet, and a client of it."""
    begun, may_end = threading.Event(), threading.Event()
    whole = GradientTrainer.backward

    def slow(*given, **how):
        begun.set()
        assert may_end.wait(60)
        return whole(*given, **how)

    @contextmanager
    def started(before):
        monkeypatch.setattr(GradientTrainer, "backward", slow)
        server = TinkerServer([base], tmp_path / "data", keys=[KEY])
        client = make_client(server.base_url)
        session = client.session()
        body = {"session_id": session, "sampling_session_seq_id": 0, "base_model": NAME}
        sampling = client.post("/create_sampling_session", body)["sampling_session_id"]
        before(client, sampling)
        client.backward(client.model(session), 1, [DATUM])
        assert begun.wait(60)
        with ThreadPoolExecutor(1) as threads:
            ending = threads.submit(server.close)
            while not server._service._scheduler._is_closed:
                time.sleep(0.01)
            try:
                yield client, sampling
            finally:
                may_end.set()
            ending.result(60)

    return started


def test_a_sample_that_is_sent_while_the_server_ends_is_answered_after_the_next_start(
    base, tmp_path, make_client, ends_slowly
):
    with ends_slowly(lambda client, sampling: None) as (client, sampling):
        request = client.sample(sampling, 1, TOKENS, params=LONG)
        time.sleep(0.3)  # in which it would begin
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    answer = make_client(server.base_url).output(request, "SampleResponse")
    server.close()

    assert len(answer.sequences[0].tokens) == 4 * 1500


def test_an_end_that_takes_too_long_and_becomes_a_kill_counts_for_what_is_executed_alone(
    tmp_path, ends_slowly, monkeypatch
):
    async def never(sampling, request):
        await asyncio.Event().wait()

    def before(client, sampling):
        monkeypatch.setattr(Sampling, "run", never)
        client.sample(sampling, 1, TOKENS)

    def kills() -> dict[str, int]:
        query = "SELECT kind, kills FROM requests WHERE finished IS NULL"
        with closing(sqlite3.connect(tmp_path / "data/tinker.db")) as journal:
            return dict(journal.execute(query).fetchall())

    with ends_slowly(before):
        until = time.monotonic() + 30
        while kills()["sample"] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        found = kills()  # as a kill in this moment would leave them

    assert found == {"sample": -1, "forward_backward": 1}  # the next start makes the sample's 0
    assert kills() == {"sample": -1}
