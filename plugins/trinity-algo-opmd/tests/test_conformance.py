from __future__ import annotations

from trinity_testing import conformance

test_plugin = conformance.suite(
    "opmd",
    args={
        "advantage_fn/opmd": [{}, {"opmd_baseline": "logavgexp", "tau": 0.5}],
        "advantage_fn/asymre": [{}, {"baseline_shift": 0.0}],
        "policy_loss_fn/sppo": [{}, {"epsilon": 0.1}, {"loss_agg_mode": "seq-mean-token-sum"}],
        "policy_loss_fn/opmd": [{}, {"tau": 0.0}, {"loss_agg_mode": "seq-mean-token-mean"}],
    },
)
