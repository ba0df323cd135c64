"""What travels between processes arrives as it was sent."""

from __future__ import annotations

import pickle

from trinity.common.outcome import Outcome, RunFailure
from trinity.explorer.packing import PackedResults
from trinity.explorer.requests import RolloutResult, requests_of
from trinity_testing.builders import a_task, an_experience


def test_results_travel_with_what_went_wrong_before() -> None:
    requests = requests_of(a_task(repeat_times=3), batch="1", number=0, max_repeat_times=1)
    failure = RunFailure(
        outcome=Outcome.ENV_ERROR, workflow="w", plugin="p", task_id="1/0", run=1, message="died"
    )
    results = [
        RolloutResult(request=requests[0], experiences=(an_experience(), an_experience(step=1))),
        RolloutResult(
            request=requests[1], experiences=(an_experience(run=1),), retried=(failure,) * 2
        ),
        RolloutResult(request=requests[2], failure=failure, retried=(failure,)),
    ]

    sent = pickle.loads(pickle.dumps(PackedResults.of(results)))
    arrived = sent.unpacked(requests)

    assert [len(result.experiences) for result in arrived] == [2, 1, 0]
    assert [result.retried for result in arrived] == [(), (failure, failure), (failure,)]
    assert [result.failure for result in arrived] == [None, None, failure]
