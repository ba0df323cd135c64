"""The runs of the zoo of ``advisor_zoo.py``: what is wrong with each, and its half."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor_zoo_new_kinds import (
    ALGORITHM,
    ENGINE,
    LEARNING_RATE,
    LR,
    NEW_KINDS,
    REWARD,
    REWARD_ARGS,
    TRAINER,
    WORKFLOW,
    WORKFLOW_ARGS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Case:
    """One run of the zoo.

    Attributes:
        name: of it.
        kind: of pathology; of a healthy run its task.
        half: ``tuning`` or ``held_out``; of more healthy runs ``third``; ``new_kinds``.
        settings: what differs from the base, by dotted path.
        is_sick: whether something is wrong.
        expects: the advisors that name what is wrong; others count as detections too, apart.
    """

    name: str
    kind: str
    half: str
    settings: dict[str, Any] = field(default_factory=dict)
    is_sick: bool = False
    expects: tuple[str, ...] = ()


# --- the catalogue


def pathologies() -> Iterator[Case]:
    """Yield the sick runs: two of a kind, and a kind is in one half."""
    for half, kinds in (("tuning", _TUNING), ("held_out", _HELD_OUT), ("new_kinds", NEW_KINDS)):
        for kind, (expects, variants) in kinds.items():
            for number, settings in enumerate(variants, start=1):
                yield Case(
                    name=f"{kind}-{number}", kind=kind, half=half, settings=settings,
                    is_sick=True, expects=expects,
                )  # fmt: skip


_TUNING: dict[str, tuple[tuple[str, ...], list[dict[str, Any]]]] = {
    "constant reward": (
        ("dead_groups", "difficulty"),
        [{REWARD: "zoo_constant"}, {REWARD: "zoo_constant", REWARD_ARGS: {"value": 1.0}}],
    ),
    "learning rate too high": (
        ("learning_rate", "collapse", "gradients", "replies"),
        [
            {LEARNING_RATE: LR * 100},
            {LEARNING_RATE: LR * 30, ALGORITHM: "rloo", "trainer.grad_clip": 100.0},
        ],
    ),
    "learning rate too low": (
        ("learning_rate",),
        [
            {LEARNING_RATE: LR / 10_000},
            {LEARNING_RATE: LR / 1000, ALGORITHM: "reinforceplusplus"},
        ],
    ),
    "length is paid": (
        ("length", "reward_hacking"),
        [
            {REWARD: "zoo_length", "model.max_response_tokens": 40},
            {
                REWARD: "zoo_length",
                REWARD_ARGS: {"per_letter": 0.1, "kind": "digits"},
                "model.max_response_tokens": 40,
                ALGORITHM: "rloo",
            },
        ],
    ),
    "stale weights": (
        ("mismatch", "staleness"),
        [{ENGINE: "zoo_stale"}, {ENGINE: "zoo_stale", ALGORITHM: "dapo"}],
    ),
    "leaking reward": (
        ("reward_hacking",),
        [
            {REWARD: "zoo_leak", "EVAL": {REWARD: "zoo_share", REWARD_ARGS: {"kind": "lower"}}},
            {
                REWARD: "zoo_leak",
                REWARD_ARGS: {"kind": "digits", "wanted": "letters"},
                "EVAL": {REWARD: "zoo_share", REWARD_ARGS: {"kind": "letters"}},
                ALGORITHM: "rloo",
            },
        ],
    ),
    "tool failures": (
        ("failures",),
        [
            {WORKFLOW: "zoo_tools", WORKFLOW_ARGS: {"rate": 0.4}},
            {WORKFLOW: "zoo_tools", WORKFLOW_ARGS: {"rate": 0.7}, ALGORITHM: "rloo"},
        ],
    ),
    "tasks too hard": (
        ("difficulty", "dead_groups"),
        [
            {REWARD: "zoo_mostly", REWARD_ARGS: {"every": 24}},
            {REWARD: "zoo_half", REWARD_ARGS: {"kind": "vowels", "least": 0.9}},
        ],
    ),
    "evaluation is training": (
        ("overlap",),
        [{"EVAL_ROWS": "all"}, {"EVAL_ROWS": "half"}],
    ),
    "entropy bonus": (
        ("collapse",),
        [
            {
                "algorithm.entropy_loss_fn": "default",
                "algorithm.entropy_loss_fn_args": {"entropy_coef": 1.0},
            },
            {
                "algorithm.entropy_loss_fn": "default",
                "algorithm.entropy_loss_fn_args": {"entropy_coef": -1.0},
            },
        ],
    ),
    "noisy log-probabilities": (
        ("mismatch",),
        [{ENGINE: "zoo_noisy"}, {ENGINE: "zoo_noisy", ALGORITHM: "gspo"}],
    ),
    "no exploration": (
        ("dead_groups", "replies", "collapse"),
        [
            {"buffer.explorer_input.taskset.rollout_args": {"temperature": 0.01}},
            {"buffer.explorer_input.taskset.rollout_args": {"top_k": 1}, ALGORITHM: "rloo"},
        ],
    ),
}
_HELD_OUT: dict[str, tuple[tuple[str, ...], list[dict[str, Any]]]] = {
    "sign flip": (
        ("collapse", "learning_rate"),
        [{TRAINER: "zoo_sign"}, {TRAINER: "zoo_sign", ALGORITHM: "rloo"}],
    ),
    "wrong end token": (
        ("length",),
        [{WORKFLOW: "zoo_no_end"}, {WORKFLOW: "zoo_no_end", ALGORITHM: "rloo"}],
    ),
    "dropped mask": (
        ("mismatch",),
        [
            {WORKFLOW: "zoo_mask", WORKFLOW_ARGS: {"tokens": 6}},
            {WORKFLOW: "zoo_mask", WORKFLOW_ARGS: {"tokens": 2}, ALGORITHM: "rloo"},
        ],
    ),
    "a part dominates": (
        ("reward_hacking",),
        [{REWARD: "zoo_dominated"}, {REWARD: "zoo_dominated", REWARD_ARGS: {"weight": 5.0}}],
    ),
    "KL coefficient": (
        ("collapse", "learning_rate"),
        [
            {"algorithm.kl_loss_fn": "k2", "algorithm.kl_loss_fn_args": {"kl_coef": 100.0}},
            {"algorithm.kl_loss_fn": "k2", "algorithm.kl_loss_fn_args": {"kl_coef": -1.0}},
        ],
    ),
    "judge failures": (
        ("failures",),
        [
            {REWARD: "zoo_judge", WORKFLOW: "zoo_one_by_one"},
            {REWARD: "zoo_judge", REWARD_ARGS: {"rate": 0.15}, WORKFLOW: "zoo_one_by_one"},
        ],
    ),
    "tasks too easy": (
        ("difficulty", "dead_groups"),
        [
            {REWARD: "zoo_mostly", REWARD_ARGS: {"every": 24, "value": 1.0}},
            {REWARD: "zoo_half", REWARD_ARGS: {"kind": "ascii", "least": 0.01}},
        ],
    ),
    "reward outliers": (
        ("gradients", "reward_hacking"),
        [
            {REWARD: "zoo_outlier", ALGORITHM: "rloo", "trainer.grad_clip": 1e6},
            {REWARD: "zoo_outlier", REWARD_ARGS: {"every": 150}, ALGORITHM: "rloo"},
        ],
    ),
    "other temperature": (
        ("mismatch",),
        [{ENGINE: "zoo_other_temperature"}, {ENGINE: "zoo_colder", ALGORITHM: "rloo"}],
    ),
    "old samples": (
        ("staleness", "clipping"),
        [
            {"synchronizer.sync_interval": 12},
            {"synchronizer.sync_interval": 8, "synchronizer.sync_offset": 8},
        ],
    ),
    "repetition is paid": (
        ("replies", "reward_hacking", "collapse"),
        [{REWARD: "zoo_repeat"}, {REWARD: "zoo_repeat", ALGORITHM: "rloo"}],
    ),
    "empty replies": (
        ("replies", "length"),
        [{REWARD: "zoo_empty"}, {REWARD: "zoo_empty", ALGORITHM: "rloo"}],
    ),
    "frozen weights": (
        ("learning_rate",),
        [{TRAINER: "zoo_frozen"}, {TRAINER: "zoo_frozen", ALGORITHM: "rloo"}],
    ),
    "random reward": (
        ("learning_rate", "dead_groups"),
        [{REWARD: "zoo_random"}, {REWARD: "zoo_random", ALGORITHM: "rloo"}],
    ),
    "credit to others": (
        ("learning_rate",),
        [{TRAINER: "zoo_shuffled"}, {TRAINER: "zoo_shuffled", ALGORITHM: "rloo"}],
    ),
}

_HEALTHY = {  # task -> its settings; each half has tasks and algorithms of its own
    "tuning": {
        "tasks": {
            "letters": {},
            "digits": {REWARD_ARGS: {"kind": "digits"}},
            "half": {REWARD: "zoo_half", REWARD_ARGS: {"kind": "letters", "least": 0.4}},
            "long": {"model.max_response_tokens": 24, REWARD_ARGS: {"limit": 24}},
        },
        "algorithms": ("grpo", "rloo", "reinforceplusplus", "dapo", "gspo"),
        "seeds": (1, 2, 3),
    },
    "held_out": {
        "tasks": {
            "lower": {REWARD_ARGS: {"kind": "lower"}},
            "scaled": {REWARD_ARGS: {"kind": "ascii", "scale": 10.0}},
            "two parts": {REWARD: "zoo_two"},
            "two turns": {WORKFLOW: "zoo_two_turns"},
        },
        "algorithms": ("ppo", "cispo", "opmd", "sapo", "grpo"),
        "seeds": (11, 12, 13),
    },
    "third": {  # drawn after `length` was given ten steps, of which both halves were a reason
        "tasks": {
            "upper": {REWARD_ARGS: {"kind": "upper"}},
            "vowels": {REWARD_ARGS: {"kind": "vowels"}},
        },
        "algorithms": ("grpo", "gspo", "ppo", "cispo"),
        "seeds": (21, 22, 23),
    },
    "new_kinds": {
        "tasks": {
            "punctuation": {REWARD_ARGS: {"kind": "punctuation"}},
            "half lower": {REWARD: "zoo_half", REWARD_ARGS: {"kind": "lower", "least": 0.3}},
            "consonants": {REWARD_ARGS: {"kind": "consonants"}},
        },
        "algorithms": ("rloo", "opmd", "dapo", "sapo"),
        "seeds": (31, 32, 33),
    },
}


def healthy() -> Iterator[Case]:
    """Yield the runs in which nothing is wrong."""
    for half, made_of in _HEALTHY.items():
        for task, settings in made_of["tasks"].items():
            for algorithm in made_of["algorithms"]:
                for seed in made_of["seeds"]:
                    yield Case(
                        name=f"{task}-{algorithm}-{seed}", kind=task, half=half,
                        settings=settings | {ALGORITHM: algorithm, "seed": seed},
                    )  # fmt: skip


def catalogue() -> list[Case]:
    """Return all runs, the healthy ones first."""
    return [*healthy(), *pathologies()]
