from __future__ import annotations

from trinity_testing import conformance

test_plugin = conformance.suite(
    "algorithms",
    args={
        "advantage_fn/gigpo": [{}, {"fnorm": "std"}],
        "advantage_fn/rec": [{}, {"std_normalize": True}],
        "policy_loss_fn/cispo": [{}, {"enable_mask_clip": True}],
        "policy_loss_fn/sft_phi": [{}, {"cutoff_prob": 0.7}],
        "policy_loss_fn/mix": [{}, {"mu": 0.3}],
    },
)
