"""The JSON schema of the configuration, for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.config import Config

if TYPE_CHECKING:
    from trinity.extend import PluginManager

#: (section, field) -> kind of component that the field names
NAMES = {
    ("AlgorithmConfig", "algorithm_type"): "algorithm",
    ("AlgorithmConfig", "sample_strategy"): "sample_strategy",
    ("AlgorithmConfig", "advantage_fn"): "advantage_fn",
    ("AlgorithmConfig", "policy_loss_fn"): "policy_loss_fn",
    ("AlgorithmConfig", "kl_penalty_fn"): "kl_fn",
    ("AlgorithmConfig", "kl_loss_fn"): "kl_fn",
    ("AlgorithmConfig", "entropy_loss_fn"): "entropy_loss_fn",
    ("TasksetConfig", "default_workflow_type"): "workflow",
    ("TasksetConfig", "default_reward_fn_type"): "reward_fn",
    ("ExplorerInput", "default_workflow_type"): "workflow",
    ("ExplorerInput", "default_eval_workflow_type"): "workflow",
    ("ExplorerInput", "default_reward_fn_type"): "reward_fn",
    ("DataSelectorConfig", "selector_type"): "task_selector",
    ("ReplayBufferConfig", "priority_fn"): "priority_fn",
    ("ExperienceBufferConfig", "storage_type"): "storage",
    ("InferenceModelConfig", "engine_type"): "rollout_engine",
    ("InferenceModelConfig", "tool_call_parser"): "reply_parser",
    ("InferenceModelConfig", "reasoning_parser"): "reply_parser",
    ("MonitorConfig", "monitor_type"): "monitor",
    ("OtherMonitor", "monitor_type"): "monitor",
    ("SynchronizerConfig", "sync_method"): "sync_method",
    ("TrainerConfig", "trainer_type"): "trainer",
}
#: published names that resolve to what is there
ACCEPTED = {"sync_method": ["nccl", "checkpoint", "online", "offline"], "trainer": ["verl"]}
_DOTTED_PATH = {"type": "string", "pattern": r"^[^.:/]+([.:/][^.:/]+)+$"}


def json_schema(manager: PluginManager) -> dict[str, Any]:
    """Return the schema; fields that name a component list those of the installed plugins."""
    schema = Config.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for (section, name), kind in NAMES.items():
        names = sorted({*manager.names(kind), *ACCEPTED.get(kind, [])})
        field = schema["$defs"][section]["properties"][name]
        choices: list[dict[str, Any]] = [{"enum": names}, _DOTTED_PATH]
        if field.pop("type", None) != "string":
            choices.append({"type": "null"})
        field["anyOf"] = choices
    return schema
