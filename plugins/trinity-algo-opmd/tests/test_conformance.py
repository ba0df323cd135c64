from __future__ import annotations

from trinity_testing import conformance

test_plugin = conformance.suite(
    "opmd",
    args={
        "advantage_fn/opmd": [{}, {"opmd_baseline": "logavgexp", "tau": 0.5}],
        "policy_loss_fn/opmd": [{}, {"tau": 0.0}, {"loss_agg_mode": "seq-mean-token-mean"}],
    },
)
