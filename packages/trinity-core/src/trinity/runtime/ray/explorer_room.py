"""The explorer in a process of its own: tasks and experiences pass here, runs happen elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.explorer.continuous import ContinuousExplorer
from trinity.explorer.explorer import Explorer
from trinity.runtime.assembly import make_experience_pipeline
from trinity.runtime.pace import is_in_flight
from trinity.runtime.ray.handle import find_room
from trinity.runtime.ray.remote_scheduler import RemoteScheduler
from trinity.runtime.ray.remote_sink import RemoteGroups, RemoteSink
from trinity.runtime.record.rewind import GrowingFiles

if TYPE_CHECKING:
    from trinity.buffer.pipeline import ExperiencePipeline
    from trinity.common.metrics import Metrics
    from trinity.common.ports import ExperienceSink
    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.ray.room import RoomContext

__all__ = ["ExplorerRoom"]


class ExplorerRoom:
    """Holds an explorer whose runs happen in the rooms of the runners.

    Args:
        context: of the room.
        namespace: of the run.
        num_engines: how many runners there are.
    """

    def __init__(self, context: RoomContext, *, namespace: str, num_engines: int) -> None:
        config = context.config
        self._sink: RemoteSink | None = None
        scheduler = RemoteScheduler(
            [find_room(namespace, f"runner-{number}") for number in range(num_engines)]
        )
        evaluation_sets = build_evaluation_sets(config)
        if is_in_flight(config):
            groups = RemoteGroups(find_room(namespace, "buffer"))
            self._explorer: Explorer = ContinuousExplorer(
                config,
                tasks=TaskSource(config),
                evaluation_sets=evaluation_sets,
                scheduler=scheduler,
                pipeline=_pipeline(context, groups),
                shelf=groups,
                marks=GrowingFiles(config, rundir=context.rundir).explorer_marks,
            )
            return
        tasks = None
        if config.mode != "bench":
            tasks, self._sink = TaskSource(config), RemoteSink(find_room(namespace, "buffer"))
        self._explorer = Explorer(
            config,
            tasks=tasks,
            evaluation_sets=evaluation_sets,
            scheduler=scheduler,
            pipeline=None if self._sink is None else _pipeline(context, self._sink),
        )

    def explore_step(self, step: int, state: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the tasks of a step and hand on what they give.

        Args:
            step: counts from 1.
            state: where to begin; None: where the last step ended.

        Returns:
            the :class:`ExploreResult` as ``result``, and as ``state`` where the step ended.

        Raises:
            StopIteration: there are no more tasks.
            RunFailedError: too many runs failed.
        """
        if state is not None:
            self._explorer.load_state_dict(state)
        if self._sink is not None:
            self._sink.batch_id = str(step)
        result = self._explorer.explore_step(step)
        return {"result": result, "state": self._explorer.state_dict()}

    def next_batch(self, step: int, *, timeout_s: float) -> ExploreResult | None:
        """Return a step whose groups are in flight, once a batch is whole; None: not in time.

        Raises:
            StopIteration: there are no more tasks.
            RunFailedError: too many runs failed.
        """
        assert isinstance(self._explorer, ContinuousExplorer)
        return self._explorer.next_batch(step, timeout_s=timeout_s)

    def loaded(self, version: int, *, is_all: bool = True) -> None:
        """Note what weights the engines have: trained on all that was taken, or on less."""
        assert isinstance(self._explorer, ContinuousExplorer)
        self._explorer.loaded(version, is_all=is_all)

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands."""
        return self._explorer.state_dict()

    def evaluate(self, step: int) -> Metrics:
        """Return the metrics of all evaluation tasks."""
        return self._explorer.evaluate(step)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._explorer.load_state_dict(state)

    def close(self) -> None:
        """Close the explorer; safe to call twice."""
        self._explorer.close()


def _pipeline(context: RoomContext, sink: ExperienceSink) -> ExperiencePipeline:
    return make_experience_pipeline(
        context.config, context.manager, sink=sink, rundir=context.rundir
    )
