"""A plugin of parts that build, run and end, and are wrong; named by their classes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1

_HERE = Path(__file__).parent
_BASES = {  # the contract that a class of these modules derives from, by its first base
    "SimpleWorkflow": "workflow",
    "RewardFn": "reward_fn",
    "Varied": "reward_fn",
    "SequentialSelector": "task_selector",
    "GRPOAdvantageFn": "advantage_fn",
    "GRPOBatchAdvantageFn": "advantage_fn",
    "PPOPolicyLossFn": "policy_loss_fn",
    "DefaultSampleStrategy": "sample_strategy",
    "ExperienceOperator": "experience_operator",
    "QueueStorage": "storage",
    "TransformersEngine": "rollout_engine",
    "Changed": "rollout_engine",
    "TorchTrainer": "trainer",
    "MemorySync": "sync_method",
    "JsonlMonitor": "monitor",
}
_PROVIDES = {  # as the core says of the parts that these derive from
    "rollout_engine": {
        "logprobs",
        "seeded_by_key",
        "busy_s",
        "shares_module",
        "stop_strings",
        "structure",
        "weights:memory",
        "scores",
        "in_flight",
    },
    "storage": {"waiting", "put_back", "drop_older", "in_order"},
    "sample_strategy": {"in_order"},
    "trainer": {
        "ref_logprob",
        "values",
        "entropys",
        "necs",
        "shares_module",
        "trained_batch",
        "ranks",
    },
}


def all_parts() -> dict[str, tuple[str, str]]:
    """Return ``kind/name`` -> (``module:class``, what is wrong in words)."""
    found = {}
    for file in sorted(_HERE.glob("wrong_run_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                kind = _BASES[ast.unparse(node.bases[0])]
                name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", node.name)
                text = (ast.get_docstring(node) or "").splitlines()[0]
                found[f"{kind}/{name.lower()}"] = (f"{file.stem}:{node.name}", text)
    return found


def _of(kind: str) -> dict[str, ComponentSpec]:
    return {
        key.partition("/")[2]: ComponentSpec(target, provides=frozenset(_PROVIDES.get(kind, ())))
        for key, (target, _) in all_parts().items()
        if key.startswith(f"{kind}/")
    }


@hookimpl
def trinity_workflows():
    return _of("workflow")


@hookimpl
def trinity_reward_fns():
    return _of("reward_fn")


@hookimpl
def trinity_task_selectors():
    return _of("task_selector")


@hookimpl
def trinity_advantage_fns():
    return _of("advantage_fn")


@hookimpl
def trinity_policy_loss_fns():
    return _of("policy_loss_fn")


@hookimpl
def trinity_sample_strategies():
    return _of("sample_strategy")


@hookimpl
def trinity_experience_operators():
    return _of("experience_operator")


@hookimpl
def trinity_storages():
    return _of("storage")


@hookimpl
def trinity_rollout_engines():
    return _of("rollout_engine")


@hookimpl
def trinity_trainers():
    return _of("trainer")


@hookimpl
def trinity_sync_methods():
    return _of("sync_method")


@hookimpl
def trinity_monitors():
    return _of("monitor")
