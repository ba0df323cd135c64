"""Settings that are read only by a part that is not in the run; each is listed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.base import ENGINES, GROUPS, SIDES
from trinity.common.config.buffer import STORED
from trinity.common.config.inference_model import InferenceModelConfig, engine_parameters
from trinity.common.config.paths import fields
from trinity.common.config.trainer import CRITIC, RANKS, SHARDED, WHOLE
from trinity.common.sync_policy import begins_groups, policy_of
from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config.resolve import Resolution

_ASYNC, _AHEAD = "sync style fully_async", "sync styles other than fixed"  # in used_by

_EXPERIENCES = "buffer.trainer_input.experience_buffer"
_SHARING = {"fsdp", "fsdp2"}
# Only who starts the run knows whether it is over Ray.
_ALONE = "with --local, where the trainer is one rank"
_TOGETHER = "over Ray, where ranks on several GPUs share the weights (fsdp2)"
_OPEN = {_ALONE: "read only", _TOGETHER: "read only", "runs on Ray": "read only by"}
_OF_STANDALONE = {"synchronizer.sync_timeout", "explorer.max_inflight_batches"}
_SUPERVISED = {
    "prompt_type",
    "messages_key",
    "tools_key",
    "chosen_key",
    "rejected_key",
    "enable_concatenated_multi_turn",
    "chat_template",
}


def note_unused(work: Resolution) -> None:
    """Note what was asked and nothing in this run reads."""
    unused: dict[str, list[str]] = {}
    for path, section, name, info in fields(work.config):
        extra = info.json_schema_extra
        assert isinstance(extra, dict), f"{path} is not classified"
        if name not in section.model_fields_set:
            continue
        if getattr(section, name) == info.get_default(call_default_factory=True):
            continue
        reader = _missing_reader(work, path, section, extra)
        if reader:
            unused.setdefault(reader, []).append(work.config.source.written(path))
    for reader, paths in unused.items():
        by = _OPEN.get(reader, "not used in this run, read only by")
        work.note(f"{by} {reader}: {', '.join(paths)}")


def _missing_reader(
    work: Resolution, path: str, section: object, extra: Mapping[str, Any]
) -> str | None:
    """Return who would read a setting, None where somebody in this run does."""
    if path == "trainer.trainer_config" and set(work.value(path)) == {"critic"}:
        return None if _is_read(work, CRITIC) else CRITIC
    if extra["status"] == "other":
        return _other_reader(work, path, section, used_by=str(extra["used_by"]))
    if _is_for_supervised_rows(path):
        return "files of supervised rows"
    if path == f"{_EXPERIENCES}.path" and work.value(f"{_EXPERIENCES}.storage_type") == "queue":
        return "storage in files"
    if "switch" in extra and not getattr(section, extra["switch"]):
        switch = f"{path.rpartition('.')[0]}.{extra['switch']}"
        return f"runs with {work.config.source.written(switch)}"
    return None


def _other_reader(work: Resolution, path: str, section: object, *, used_by: str) -> str | None:
    if path in _OF_STANDALONE and work.config.is_standalone:
        return None
    if used_by == STORED and path.startswith(_EXPERIENCES) and work.config.mode == "train":
        return None
    if path == "synchronizer.sync_timeout" and not work.config.is_plugin_mode:
        return None  # a run over Ray reads it: nobody knows here whether this is one
    if isinstance(section, InferenceModelConfig) and used_by == ENGINES:
        return _missing_engine(work, path, section)
    if used_by in {WHOLE, SHARDED} and _may_share_weights(work):
        return _ALONE if used_by == WHOLE else _TOGETHER
    return None if _is_read(work, used_by) else used_by


def _missing_engine(work: Resolution, path: str, section: InferenceModelConfig) -> str | None:
    """Return who would read what an engine is given, None where this one's constructor names it."""
    name = path.rpartition(".")[2]
    engine = section.engine_type or work.config.explorer.rollout_model.engine_type
    component = work.parts.find("rollout_engine", engine)
    if component is None:  # said by check
        return None
    try:
        parameters = engine_parameters(component)
    except TrinityError:  # it cannot be loaded: said by check
        return None
    if parameters is None or name in parameters:
        return None
    if name != "extra_engine_args":
        return ENGINES
    left = sorted(set(section.extra_engine_args) - parameters)
    return f"an engine whose constructor names {', '.join(left)}" if left else None


def _is_for_supervised_rows(path: str) -> bool:
    section, _, name = path.rpartition(".")
    return "tasksets." in section and section.endswith(".format") and name in _SUPERVISED


def _is_read(work: Resolution, used_by: str) -> bool:
    if used_by in {_ASYNC, _AHEAD}:
        is_async = begins_groups(work.config)
        return is_async or (used_by == _AHEAD and not policy_of(work.config).in_rounds)
    if used_by == GROUPS:
        return work.config.synchronizer.sync_method in {"nccl", "gloo"}
    if used_by == CRITIC:
        algorithm: Any = work.parts.load("algorithm", work.config.algorithm.algorithm_type)
        return hasattr(algorithm, "setting") and bool(algorithm.setting("use_critic"))
    if used_by in {RANKS, SHARDED, WHOLE}:
        return _is_read_by_ranks(work, used_by)
    if used_by in {"storage sql", SIDES}:
        has_ledger = bool(work.value(f"{_EXPERIENCES}.storage_type") == "sql")
        return work.config.shares_run_directory if used_by == SIDES else has_ledger
    return used_by == f"mode {work.config.mode}"


def _is_read_by_ranks(work: Resolution, used_by: str) -> bool:
    trainer, num_gpus = work.config.trainer, work.machine.num_gpus
    are_several = trainer.num_ranks > 1 or (trainer.num_ranks == 0 and num_gpus > 1)
    if used_by == RANKS:
        return are_several
    shares_weights = are_several and trainer.trainer_strategy in _SHARING
    return num_gpus > 0 and shares_weights == (used_by == SHARDED)


def _may_share_weights(work: Resolution) -> bool:
    """Return whether ranks share the weights over Ray, and there is one rank in one process."""
    trainer = work.config.trainer
    is_open = trainer.num_ranks == 0 and work.machine.num_gpus > 1
    return is_open and trainer.trainer_strategy in _SHARING and not work.config.is_plugin_mode
