"""The numbers of a step count what was dropped in with what is trained."""

from __future__ import annotations

import json

from trinity.explorer.flight_metrics import GroupMetrics, StepMetrics


def a_group(reward, *, written):
    return GroupMetrics(
        rows=[{"reward": reward}],
        counts={"rollout/num_tokens": 3.0},
        processed={
            "experience_pipeline/num_written": written,
            "experience_pipeline/num_filtered": 2.0 - written,
            "experience_pipeline/std": reward,
        },
        busy_s=1.0,
    )


def test_what_operators_dropped_is_part_of_the_means_and_sums() -> None:
    metrics = StepMetrics(num_slots=1)
    metrics.ended(0, a_group(1.0, written=2.0))
    metrics.dropped(a_group(0.0, written=0.0))

    told = metrics.of_step([0], busy_s=0.0)

    assert told["rollout/reward/mean"] == 0.5
    assert told["experience_pipeline/num_filtered"] == 2.0
    assert told["experience_pipeline/std"] == 0.5
    assert told["rollout/num_tokens"] == 6.0


def test_what_was_dropped_since_the_last_step_is_saved() -> None:
    metrics, again = StepMetrics(num_slots=1), StepMetrics(num_slots=1)
    metrics.ended(0, a_group(1.0, written=2.0))
    metrics.dropped(a_group(0.0, written=0.0))

    again.load_state_dict(json.loads(json.dumps(metrics.state_dict())))

    assert again.of_step([0], busy_s=0.0)["groups/dropped"] == 1.0
