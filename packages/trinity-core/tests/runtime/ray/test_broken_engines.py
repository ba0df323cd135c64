"""An engine that can do nothing any more makes room for another one."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

import pytest
from trinity.common.ports import GenerationRequest, RunKey, WeightSnapshot, WeightVersion
from trinity.errors import EngineBrokenError, WorkerLostError
from trinity.runtime.ray import engine_worker
from trinity.runtime.ray.engine_worker import EngineWorker
from trinity.synchronizer.weights import PackedWeights


@pytest.mark.parametrize("where", ["submit", "answer", "score", "load"])
def test_the_process_of_an_engine_that_can_do_nothing_any_more_is_ended(
    workers, keyed_engine, monkeypatch, where, caplog
) -> None:
    ends, engine = [], keyed_engine()

    def fail(*_):
        raise EngineBrokenError("a worker is gone")

    def answer(*_):
        failed = Future()
        failed.set_exception(EngineBrokenError("a worker is gone"))
        return failed

    monkeypatch.setattr(engine_worker, "end_process", lambda: ends.append("ended"))
    engine.submit = fail if where == "submit" else answer
    engine.score, engine.load_weights = answer, fail
    workers.engines = [engine]
    part = EngineWorker(workers.context, number=0)
    part.load_weights(None)
    part.serve()
    part.open("one")

    with suppress(WorkerLostError):
        if where == "load":
            snapshot = WeightSnapshot(version=WeightVersion(5), tensors={})
            part.load_weights(PackedWeights.of(snapshot))
        elif where == "score":
            part.score([1, 2], 1.0)
        else:
            request = GenerationRequest(prompt_token_ids=(1, 2, 3), key=RunKey())
            part.exchange("one", 1, [(1, request)], 0.0)

    assert ends == ["ended"]
    assert "engine-0 ends its process: a worker is gone" in caplog.text
