"""What will a run miss, because a part cannot do what is optional?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_args import argument_problems
from trinity.common.config.check_names import is_own, named_parts, problem_at, tasksets_in_use
from trinity.common.config.inference_model import engine_arguments, engine_parameters
from trinity.common.config.parts import named_failure
from trinity.errors import TrinityError
from trinity.extend.kinds import KINDS
from trinity.extend.known import how_to_get

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.check_names import NamedPart
    from trinity.common.config.config import Config
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem

_BUFFER = "buffer.trainer_input.experience_buffer"
_LOOKED_AT = frozenset({"storage", "trainer", "rollout_engine"})


def ability_problems(config: Config, parts: NamedParts) -> list[Problem]:
    """Return a notice for what a run can do without, and a problem for what it cannot."""
    problems: list[Problem] = []
    for part in named_parts(config):
        can = _abilities(part, parts) if part.kind in _LOOKED_AT else None
        is_buffer = part.path == f"{_BUFFER}.storage_type"
        problems += _of_standalone(config, part, parts, can) if is_buffer else ()
        if can is None:
            continue
        if is_buffer:
            problems += _of_storage(config, part, can)
        elif part.kind == "trainer" and config.mode == "both":
            problems += _of_trainer(config, part, can)
            if "preflight" in can:
                with named_failure(f"preflight of trainer {part.name}"):
                    trainer: Any = parts.manager.find(part.kind, part.name).load()
                    problems += trainer.preflight(config)
        elif part.kind == "rollout_engine":
            problems += [*_of_engine(config, part, can), *_of_preflight(config, part, parts, can)]
    return [*problems, *_of_workflows(config, parts)]


def _of_standalone(
    config: Config, part: NamedPart, parts: NamedParts, can: frozenset[str] | None
) -> Iterator[Problem]:
    """Yield why explorer and trainer cannot be the separate runs that are asked for."""
    if not config.synchronizer.standalone:
        return
    key = "synchronizer.standalone"
    if config.mode not in {"explore", "train"}:
        what = f"is true, but mode is {config.mode}; standalone runs have mode explore or train."
        yield config.source.problem(key, what, "Use one of these modes, or leave it out.")
    if can is not None and "standalone" not in can:
        what = f"is true, but explorer and trainer cannot meet in storage_type {part.name}."
        missing = parts.not_installed("storage", "sql")
        line = f" {how_to_get(missing)}" if missing else ""
        yield config.source.problem(key, what, f"Set {_BUFFER}.storage_type to sql.{line}")


def _of_storage(config: Config, part: NamedPart, can: frozenset[str]) -> Iterator[Problem]:
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is None or buffer.replay_buffer.enable:
        return
    if not can & {"waiting", "state"}:
        message = (
            f"storage {part.name} provides neither 'waiting' nor 'state', so checkpoints lack its "
            "untrained experiences, and a stopped run cannot be resumed. Use queue, or implement "
            "one of them."
        )
        yield replace(problem_at(config, part.path, message), severity="notice")
    is_counted = config.buffer.total_steps is None and config.trainer.total_steps is None
    is_read_whole = config.mode == "train" and not config.is_standalone
    if is_read_whole and is_counted and "length" not in can:
        message = f"storage {part.name} cannot tell how many experiences it holds (no __len__)."
        yield problem_at(config, part.path, f"{message} Set trainer.total_steps.")


def _of_trainer(config: Config, part: NamedPart, can: frozenset[str]) -> Iterator[Problem]:
    if "shares_module" not in can and not config.model.tinker.enable:
        message = (
            f"trainer {part.name} does not share its module (shares_module), so an engine in the "
            f"same process has a second copy of the model in memory."
        )
        yield replace(problem_at(config, part.path, message), severity="notice")


def _of_engine(config: Config, part: NamedPart, can: frozenset[str]) -> Iterator[Problem]:
    size = config.explorer.rollout_model.tensor_parallel_size
    if size > 1 and "tensor_parallel" not in can:
        message = f"is {size}, but the rollout engine {part.name} uses one GPU (it does not "
        message += "provide 'tensor_parallel'). Leave it out, or use more engines (engine_num)."
        yield problem_at(config, "explorer.rollout_model.tensor_parallel_size", message)
    if config.is_colocated and "sleep" not in can:
        message = f"engines would sleep while the trainer works, and {part.name} cannot (it does "
        message += "not provide 'sleep'). Use mode both without it, or an engine that can."
        yield problem_at(config, "explorer.rollout_model.enable_sleep_mode", message)
    how = config.synchronizer.in_flight
    if how != "finish" and "in_flight" not in can:
        message = f"is {how}, but the rollout engine {part.name} loads weights only between "
        message += "replies (it does not provide 'in_flight'). Leave it out, or use engine_type "
        message += "transformers."
        yield problem_at(config, "synchronizer.in_flight", message)


def _of_preflight(
    config: Config, part: NamedPart, parts: NamedParts, can: frozenset[str]
) -> Iterator[Problem]:
    """Yield what the engine itself says would keep it from running, and what it would refuse."""
    if not can & {"preflight", "limits"}:
        return
    component = parts.manager.find(part.kind, part.name)
    arguments = engine_arguments(
        engine_parameters(component), rollout=config.explorer.rollout_model, model=config.model
    )
    with named_failure(f"preflight of rollout_engine {part.name}"):
        engine: Any = component.load()
        for text in engine.preflight(**arguments) if "preflight" in can else ():
            yield problem_at(config, part.path, text)
        for text in engine.limits(**arguments) if "limits" in can else ():
            yield replace(problem_at(config, part.path, text), severity="notice")


def _of_workflows(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield what the workflows that can be asked early say against their arguments."""
    for path, taskset in tasksets_in_use(config):
        component = parts.find("workflow", taskset.default_workflow_type)
        if component is None:
            continue
        workflow: Any = parts.load("workflow", component.name)
        fields = getattr(workflow, "args_model", None)
        if fields is not None or component.spec.args_model:
            for name, text in argument_problems(component, fields or object, taskset.workflow_args):
                yield problem_at(config, f"{path}.workflow_args.{name}", text)
        if "preflight" not in component.spec.provides:
            continue
        with named_failure(f"check_arguments of workflow {component.name}"):
            try:
                workflow.check_arguments(taskset.workflow_args)
            except TrinityError as error:
                yield problem_at(config, f"{path}.workflow_args", str(error))


def _abilities(part: NamedPart, parts: NamedParts) -> frozenset[str] | None:
    """Return what a part can do; None: it is not there, or is none, which is said elsewhere."""
    try:
        component = parts.manager.find(part.kind, part.name)
        kind = KINDS[part.kind]
        if not is_own(component) and kind.problem_of(component.load()) is not None:
            return None
        return kind.abilities_of(component)
    except TrinityError:
        return None
