"""The core's own parts and this kit's hold what every plugin's must, with their options too."""

import pytest
from trinity.extend import get_manager
from trinity_testing import conformance
from trinity_testing.check import Status
from trinity_testing.planning import plan

AGGREGATION = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
LOSSES = [{"loss_agg_mode": mode} for mode in AGGREGATION]

BUILTIN = plan(
    "builtin",
    get_manager(),
    args={
        "advantage_fn/grpo": [{}, {"std_threshold": 0.0}, {"std_cal_level": "batch"}],
        "policy_loss_fn/ppo": [
            *LOSSES,
            {"enable_sequence_masking": True},
            {"fallback_to_policy_gradient": True},
        ],
        "policy_loss_fn/sft": LOSSES,
    },
)


@pytest.mark.parametrize("component", sorted({case.component for case in BUILTIN}))
def test_builtin(component):
    results = [case.run() for case in BUILTIN if case.component == component]

    assert [result for result in results if result.is_bad] == []


test_testing = conformance.suite("testing")

IN_A_WORKER = plan("builtin", get_manager(), ids=["ray"])
IN_CI = {"", "rollout_engine", "storage", "workflow"}  # what differs most in a worker
KINDS = [
    kind if kind in IN_CI else pytest.param(kind, marks=pytest.mark.acceptance)
    for kind in sorted({case.component.partition("/")[0] for case in IN_A_WORKER})
]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", KINDS)
def test_builtin_in_a_worker(kind):
    results = [case.run() for case in IN_A_WORKER if case.component.partition("/")[0] == kind]

    assert {result.status for result in results} == {Status.PASS}, results
