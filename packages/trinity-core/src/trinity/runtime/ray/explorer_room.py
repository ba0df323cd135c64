"""The explorer in a process of its own: tasks and experiences pass here, runs happen elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.explorer.explorer import Explorer
from trinity.runtime.assembly import make_experience_pipeline
from trinity.runtime.ray.handle import find_room
from trinity.runtime.ray.remote_scheduler import RemoteScheduler
from trinity.runtime.ray.remote_sink import RemoteSink

if TYPE_CHECKING:
    from trinity.buffer.pipeline import ExperiencePipeline
    from trinity.common.metrics import Metrics
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
        runners = [find_room(namespace, f"runner-{number}") for number in range(num_engines)]
        self._sink: RemoteSink | None = None
        tasks: TaskSource | None = None
        pipeline: ExperiencePipeline | None = None
        if config.mode != "bench":
            tasks = TaskSource(config)
            self._sink = RemoteSink(find_room(namespace, "buffer"))
            pipeline = make_experience_pipeline(
                config, context.manager, sink=self._sink, rundir=context.rundir
            )
        self._explorer = Explorer(
            config,
            tasks=tasks,
            evaluation_sets=build_evaluation_sets(config),
            scheduler=RemoteScheduler(runners),
            pipeline=pipeline,
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

    def evaluate(self, step: int) -> Metrics:
        """Return the metrics of all evaluation tasks."""
        return self._explorer.evaluate(step)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._explorer.load_state_dict(state)

    def close(self) -> None:
        """Close the explorer; safe to call twice."""
        self._explorer.close()
