"""Fifteen more kinds of what may be wrong with a run of the zoo, and the words of its catalogue.

They were written when the advisors were final, by somebody who had not read their code.
"""

from __future__ import annotations

from typing import Any

LR = 0.03
REWARD = "buffer.explorer_input.taskset.default_reward_fn_type"
REWARD_ARGS = "buffer.explorer_input.taskset.reward_fn_args"
WORKFLOW = "buffer.explorer_input.taskset.default_workflow_type"
WORKFLOW_ARGS = "buffer.explorer_input.taskset.workflow_args"
LEARNING_RATE = "algorithm.optimizer.lr"
ALGORITHM = "algorithm.algorithm_type"
ENGINE = "explorer.rollout_model.engine_type"
TRAINER = "TRAINER"  # a wrong trainer in the place of the real one

NEW_KINDS: dict[str, tuple[tuple[str, ...], list[dict[str, Any]]]] = {
    "limit too short": (
        ("length",),
        [
            {"model.max_response_tokens": 2, REWARD_ARGS: {"limit": 2}},
            {"model.max_response_tokens": 3, REWARD_ARGS: {"limit": 3}, ALGORITHM: "rloo"},
        ],
    ),
    "warm-up longer than the run": (
        ("learning_rate",),
        [
            {"algorithm.optimizer.lr_warmup_steps": 20_000},
            {"algorithm.optimizer.lr_warmup_steps": 3_000, ALGORITHM: "rloo"},
        ],
    ),
    "weight decay": (
        ("collapse", "learning_rate"),
        [
            {"algorithm.optimizer.weight_decay": 20.0},
            {"algorithm.optimizer.weight_decay": 5.0, ALGORITHM: "rloo"},
        ],
    ),
    "evaluation is broken": (
        ("failures", "reward_hacking"),
        [
            {"EVAL": {REWARD: "zoo_constant"}},
            {"EVAL": {WORKFLOW: "zoo_tools", WORKFLOW_ARGS: {"rate": 0.8}}, ALGORITHM: "rloo"},
        ],
    ),
    "reward of the reply before": (
        ("learning_rate",),
        [{REWARD: "zoo_previous"}, {REWARD: "zoo_previous", ALGORITHM: "rloo"}],
    ),
    "reward inflates": (
        ("reward_hacking", "learning_rate"),
        [
            {REWARD: "zoo_inflating"},
            {REWARD: "zoo_inflating", REWARD_ARGS: {"by": 0.003, "weight": 0.0},
             ALGORITHM: "reinforceplusplus"},
        ],
    ),
    "reward by place": (
        ("learning_rate",),
        [{REWARD: "zoo_place"}, {REWARD: "zoo_place", ALGORITHM: "rloo"}],
    ),
    "mask hides the reply": (
        ("learning_rate", "dead_groups"),
        [
            {WORKFLOW: "zoo_hidden", WORKFLOW_ARGS: {"kept": 1}},
            {WORKFLOW: "zoo_hidden", WORKFLOW_ARGS: {"kept": 0}},
        ],
    ),
    "cached replies": (
        ("replies", "dead_groups"),
        [{ENGINE: "zoo_cached"}, {ENGINE: "zoo_lasting_cache", ALGORITHM: "rloo"}],
    ),
    "wrong log-probabilities": (
        ("mismatch",),
        [{ENGINE: "zoo_zero_logprobs"}, {ENGINE: "zoo_shifted_logprobs", ALGORITHM: "rloo"}],
    ),
    "corrupted tokens": (
        ("mismatch",),
        [{ENGINE: "zoo_corrupted"}, {ENGINE: "zoo_corrupted_seldom", ALGORITHM: "rloo"}],
    ),
    "advantages without sign": (
        ("collapse", "learning_rate"),
        [{TRAINER: "zoo_without_sign"}, {TRAINER: "zoo_without_sign", ALGORITHM: "rloo"}],
    ),
    "weights are reset": (
        ("learning_rate",),
        [{TRAINER: "zoo_reset_1"}, {TRAINER: "zoo_reset_4", ALGORITHM: "rloo"}],
    ),
    "one batch for ever": (
        ("mismatch", "staleness", "clipping"),
        [{TRAINER: "zoo_stuck_1"}, {TRAINER: "zoo_stuck_6", ALGORITHM: "rloo"}],
    ),
    "a weight becomes NaN": (
        ("gradients", "collapse"),
        [{TRAINER: "zoo_nan_norm"}, {TRAINER: "zoo_nan_late", ALGORITHM: "rloo"}],
    ),
}  # fmt: skip
