"""Run one task of a configuration once, in this thread, so that ``breakpoint()`` works.

config --> row of a taskset --> Runner --> workflow --> Watched engine --> experiences, or why not
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.common.config import prepared_stages
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.pretrained import fetch_settings
from trinity.errors import ConfigError, unknown_name
from trinity.explorer.requests import restored_request
from trinity.explorer.runner import RolloutAttempt, Runner
from trinity.runtime.assembly import make_endpoints, make_engine
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.environment import environment
from trinity.runtime.error_context import boundary
from trinity.runtime.preflight import check_workflows, plugins_of

from trinity_debug.difference import Difference, of_environment, of_experiences
from trinity_debug.engines import Repeating, Saying, Watched
from trinity_debug.environments import RepeatedEnvironments
from trinity_debug.recorded import RecordedRollout, recorded_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from trinity.buffer.task_source import Taskset
    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.common.outcome import RunFailure
    from trinity.common.ports import RolloutEngine
    from trinity.common.workflows import Task
    from trinity.explorer.requests import RolloutRequest
    from trinity.extend import PluginManager

    from trinity_debug.engines import EngineObserver

_EXPLORES = frozenset({"both", "explore", "bench"})


@dataclass(frozen=True, kw_only=True, slots=True)
class DebugRequest:
    """What is to be run, and who takes the model's part."""

    row: int = 0  # of the taskset
    taskset: str = ""  # its name; "": the first that is trained on
    say: tuple[str, ...] = ()  # instead of a model
    replay: Path | None = None  # a recorded try, whose replies are given again


@dataclass(frozen=True, kw_only=True, slots=True)
class Debugged:
    """How it went."""

    outcome: list[Experience] | RunFailure
    traceback: str  # of the workflow, where it failed
    recorded: RecordedRollout | None = None
    repeating: Repeating | None = None
    environments: RepeatedEnvironments | None = None
    is_reshaped: bool = False  # operators changed what was recorded: rewards are not compared
    missing: str = ""  # what an environment would lack here, where none is built

    @property
    def has_departed(self) -> bool:
        """Return whether a replayed run was stopped where it asked something else."""
        repeating, environments = self.repeating, self.environments
        return (repeating is not None and repeating.difference is not None) or (
            environments is not None and environments.departure is not None
        )

    @property
    def difference(self) -> Difference | None:
        """Return where it differs from what was recorded; None: nowhere, or nothing was."""
        repeating, recorded = self.repeating, self.recorded
        if repeating is None or recorded is None:
            return None
        environments = self.environments
        if environments is not None and environments.departure is not None:
            return of_environment(environments.departure)
        total, made = len(recorded.exchanges), repeating.num_repeated
        if repeating.difference is not None:
            was, now = repeating.difference
            return Difference(what=f"call {made + 1} of {total}", was=was, now=now)
        if not isinstance(self.outcome, list):
            return Difference(what=f"it failed after call {made} of {total}")
        if repeating.left:
            return Difference(what=f"{made} of {total} recorded calls were made")
        return self._in_the_end(recorded, self.outcome)

    def _in_the_end(
        self, recorded: RecordedRollout, experiences: Sequence[Experience]
    ) -> Difference | None:
        """Return what differs where all calls of the model are equal."""
        left = None if self.environments is None else self.environments.left
        if left is not None:
            return of_environment(left)
        if self.is_reshaped or self.repeating is None:
            return None
        return of_experiences(recorded.samples, experiences, decode=self.repeating.text)


def debug(
    config: Config,
    wanted: DebugRequest,
    *,
    observer: Callable[[ChatFormat], EngineObserver] | None = None,
    begins: Callable[[RolloutRequest, Taskset], None] | None = None,
) -> Debugged:
    """Run one try of a task.

    Args:
        config: as it was loaded; its first stage that explores is used.
        wanted: which task, and who answers.
        observer: makes who hears of each call of the model; None: nobody does.
        begins: hears what is about to be run; None: nobody does.

    Raises:
        TrinityError: the configuration cannot be run, the row is not there, nothing was recorded.
    """
    with plugins_of(config) as manager:
        manager.call("trinity_configure", config=config)
        fetch_settings(config.model)
        stage = _exploring(prepared_stages(config))
        with environment(stage.explorer.env_vars), boundary("the task"):
            session, recorded, missing = _prepared(stage, manager, replay=wanted.replay)
            ended = session.run(wanted, recorded, observer=observer, begins=begins)
        return replace(ended, missing=missing)


def _prepared(
    stage: Config, manager: PluginManager, *, replay: Path | None
) -> tuple[_DebugSession, RecordedRollout | None, str]:
    """Return the session, the recorded try, and what the workflows' own check finds missing.

    Raises:
        ConfigError: something is missing, and an environment would be built.
    """
    missing: ConfigError | None = None
    try:
        check_workflows([stage], manager=manager)
    except ConfigError as error:
        if replay is None:
            raise
        missing = error
    session = _DebugSession(stage, manager)
    recorded = None if replay is None else session.recorded(replay)
    if missing is not None and not (recorded and recorded.answers.tracks):
        raise missing
    return session, recorded, "" if missing is None else str(missing)


def _exploring(stages: Sequence[Config]) -> Config:
    for stage in stages:
        if stage.mode in _EXPLORES:
            return stage
    raise ConfigError(
        f"mode is {stages[0].mode}: no task is run there. Use a file with mode both, explore or "
        f"bench, or --set mode=explore."
    )


class _DebugSession:
    def __init__(self, config: Config, manager: PluginManager) -> None:
        self._config = config
        self._manager = manager
        self._chat_format = ChatFormat.from_config(config.model)

    def run(
        self,
        wanted: DebugRequest,
        recorded: RecordedRollout | None,
        *,
        observer: Callable[[ChatFormat], EngineObserver] | None,
        begins: Callable[[RolloutRequest, Taskset], None] | None,
    ) -> Debugged:
        """Run the task."""
        taskset = self._taskset(wanted.taskset, recorded)
        request = _request(taskset, row=wanted.row, recorded=recorded)
        with ExitStack() as stack:
            engine = stack.enter_context(closing(self._engine(wanted, recorded)))
            watched = engine if observer is None else Watched(engine, observer(self._chat_format))
            repeating = engine if isinstance(engine, Repeating) else None
            environments = _environments(recorded, repeating)
            runner = stack.enter_context(self._runner(watched, environments))
            if begins is not None:
                begins(request, taskset)
            attempt = RolloutAttempt(request)
            outcome = runner.run(attempt)
        return Debugged(
            outcome=outcome,
            traceback=attempt.traceback,
            recorded=recorded,
            repeating=repeating,
            environments=environments,
            is_reshaped=bool(self._config.data_processor.experience_pipeline.operators),
        )

    def recorded(self, place: Path) -> RecordedRollout:
        """Return a try that was recorded."""
        return recorded_run(place, end_tokens=self._chat_format.eos_token_ids)

    def _taskset(self, name: str, recorded: RecordedRollout | None) -> Taskset:
        trained = TaskSource(self._config).tasksets if self._config.mode != "bench" else []
        if recorded is not None and not name:
            return _by_id(trained, recorded.taskset)
        known = [*trained, *build_evaluation_sets(self._config)]
        if not name:
            return known[0]
        for taskset in known:
            if taskset.name == name:
                return taskset
        raise ConfigError(unknown_name("taskset", name, [taskset.name for taskset in known]))

    def _engine(self, wanted: DebugRequest, recorded: RecordedRollout | None) -> RolloutEngine:
        if recorded is not None:
            return Repeating(recorded.exchanges, chat_format=self._chat_format)
        if wanted.say:
            return Saying(wanted.say, chat_format=self._chat_format)
        engine: RolloutEngine = make_engine(self._config, self._manager)
        return engine

    @contextmanager
    def _runner(
        self, engine: RolloutEngine | Watched, environments: RepeatedEnvironments | None
    ) -> Iterator[Runner]:
        config, endpoints = self._config, make_endpoints(self._config, self._manager)
        model = ModelWrapper(
            engine,
            self._chat_format,
            config.explorer.rollout_model,
            model=config.model,
            endpoints=endpoints,
        )
        with ExitStack() as stack:
            if endpoints is not None:
                stack.callback(endpoints.close)
            auxiliary = make_auxiliary_models(config, self._manager, endpoints=endpoints)
            runner = Runner(model, auxiliary_models=auxiliary, environments=lambda _: environments)
            yield stack.enter_context(closing(runner))


def _environments(
    recorded: RecordedRollout | None, repeating: Repeating | None
) -> RepeatedEnvironments | None:
    if recorded is None or repeating is None:
        return None
    return RepeatedEnvironments(recorded.answers, is_over=lambda: repeating.difference is not None)


def _by_id(tasksets: Sequence[Taskset], number: str) -> Taskset:
    for taskset in tasksets:
        if str(taskset.taskset_id) == number:
            return taskset
    raise ConfigError(
        f"the recorded task is of taskset {number}, and this configuration has {len(tasksets)}. "
        f"Replay with the configuration of that run, or name one: --taskset NAME."
    )


def _request(taskset: Taskset, *, row: int, recorded: RecordedRollout | None) -> RolloutRequest:
    if recorded is not None:
        row = recorded.row
    if not 0 <= row < len(taskset):
        raise ConfigError(
            f"the taskset {taskset.name} has the rows 0 to {len(taskset) - 1}, not {row}."
        )
    task: Task = taskset.task(row)
    if recorded is None:
        return restored_request(task, batch="debug", number=row, run=0, num_runs=1)
    request = restored_request(task, batch=recorded.batch, number=recorded.task, run=0, num_runs=1)
    return replace(request, key=replace(request.key, run=recorded.run))
