"""The table of algorithm types, and the defaults of their components."""

from __future__ import annotations

import inspect
from functools import partial

from trinity.algorithm.fields import field_names
from trinity.errors import UnknownComponentError
from trinity.extend import get_manager
from trinity_testing.learning.toy_run import schema_name

ATTRIBUTES = ("use_critic", "use_reference", "can_balance_batch", "use_rollout")


def implementation(case):
    """Return what reads our side of the table."""
    kinds = {
        "algorithm_type": ("algorithm", _of_type),
        "compute_in_trainer": ("advantage_fn", _where),
        "policy_loss_inputs": ("policy_loss_fn", _inputs),
    }
    kind, read = kinds.get(case["op"], (case["fn"].partition("/")[0], _defaults))
    name = case["fn"].rpartition("/")[2]
    try:
        get_manager().find(kind, name)
    except UnknownComponentError:
        return None
    return partial(read, kind, name, case)


def _of_type(kind, name, case, inputs):
    algorithm = get_manager().load(kind, name)
    advantage_fn = algorithm.default_config().get("advantage_fn")
    in_trainer = advantage_fn and get_manager().load("advantage_fn", advantage_fn)
    found = {key: algorithm.setting(key) for key in ATTRIBUTES if hasattr(algorithm, key)}
    return found | {
        "compute_advantage_in_trainer": bool(in_trainer and in_trainer.compute_in_trainer()),
        "schema": schema_name(algorithm.setting("schema")),
        "default_config": _in_their_words(algorithm.default_config(), RENAMED.get(name, {})),
    }


def _defaults(kind, name, case, inputs):
    arguments = get_manager().load(kind, name).default_args()
    return {"args": _in_their_words(arguments, NEW_DEFAULTS.get(case["fn"], {}))}


def _in_their_words(ours, translations):
    """Return our values, each that is exactly what a translation says put in the table's words."""
    translated = {
        key: theirs for key, (own, theirs) in translations.items() if ours.get(key, "") == own
    }
    return ours | translated


def _where(kind, name, case, inputs):
    return {"compute_in_trainer": get_manager().load(kind, name).compute_in_trainer()}


def _inputs(kind, name, case, inputs):
    loss_fn = get_manager().load(kind, name)()
    parameters = inspect.signature(loss_fn.__call__).parameters
    needed = [
        one for one in field_names(loss_fn) if parameters[one].default is inspect.Parameter.empty
    ]
    return {"inputs": sorted(["logprob", *needed])}


#: what our types hold in other words than the table: ours, theirs, and the reason
RENAMED = {
    "opmd": {"sample_strategy": ("warmup", "default")},  # the tutorial's word, an alias of it
    # defect 12: theirs runs on lists, ours in the trainer
    "grpo_verl": {"advantage_fn": ("grpo_verl", "grpo")},
}
#: a side of GSPO's range that is not given takes clip_range, and only then the published value
NEW_DEFAULTS = {
    "policy_loss_fn/gspo": {"clip_range_low": (None, 3e-4), "clip_range_high": (None, 4e-4)},
}
