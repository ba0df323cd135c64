"""The rooms of one stage, introduced to each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.runtime.checkpoint import CheckpointStore
from trinity.runtime.rundir import RunDir, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trinity.algorithm import SampleStrategy
    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.common.ports import Monitor, RolloutEngine
    from trinity.explorer.explorer import Explorer
    from trinity.extend import PluginManager
    from trinity.runtime.bounded_source import BoundedSource
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.pipeline import Progress
    from trinity.synchronizer.memory import MemorySync
    from trinity.trainer.torch_trainer import TorchTrainer

__all__ = ["EXPLORER_STATE", "Parts", "RunInfo"]

EXPLORER_STATE = "explorer_state.json"  # where a run without a trainer keeps its place


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What the lifecycle hooks are told about a run."""

    directory: Path
    config: Config
    stage: str  # "": a run without stages


@dataclass(kw_only=True)
class Parts:
    """Everything that a pipeline uses; who is not part of the mode is None."""

    config: Config
    rundir: RunDir
    info: RunInfo
    manager: PluginManager
    display: Display
    interrupt: Interrupt
    explorer: Explorer | None = None
    engines: Sequence[RolloutEngine] = ()
    trainer: TorchTrainer | None = None
    strategy: SampleStrategy | None = None
    source: BoundedSource | None = None
    storage: Any = None  # Any: a registered storage, sink and source at once
    sync: MemorySync | None = None
    monitors: Mapping[str, Sequence[Monitor]] = field(default_factory=dict)  # by role
    num_explore_steps: int = 0
    num_train_steps: int | None = None  # None: whatever the explorer's experiences give
    has_evaluation: bool = False

    @property
    def total_steps(self) -> int:
        """Return the number of steps that the display counts to."""
        if self.explorer is not None and self.num_explore_steps:
            return self.num_explore_steps
        return self.num_train_steps or 0

    @property
    def checkpoints(self) -> CheckpointStore:
        """Return the checkpoints of this stage."""
        return CheckpointStore(
            self.rundir.path, num_kept=self.config.trainer.max_checkpoints_to_keep
        )

    def record(self, role: str, metrics: Mapping[str, float], *, step: int) -> None:
        """Give the metrics of a step to the monitors and to the plugins' hooks."""
        for monitor in self.monitors.get(role, ()):
            monitor.log(metrics, step=step)
        if role == "trainer":
            self.manager.call("trinity_step_finished", step=step, metrics=dict(metrics))

    def save(self, progress: Progress, explorer_state: dict[str, Any]) -> None:
        """Write a checkpoint, or where nothing is trained the explorer's place."""
        state = {
            "progress": asdict(progress),
            "explorer": explorer_state,
            "plugins": self.manager.describe(),
            "digest": self.manager.digest(),
        }
        if self.trainer is None:
            import json

            write_atomically(self.rundir.path / EXPLORER_STATE, json.dumps(state, indent=2) + "\n")
            return
        state["strategy"] = self.strategy.state_dict() if self.strategy else {}
        state["storage"] = self.storage.state_dict() if hasattr(self.storage, "state_dict") else {}
        saved = self.checkpoints.save(
            progress.trained,
            state=state,
            experiences=self._waiting_experiences(),
            write_actor=self.trainer.save,
        )
        self.manager.call("trinity_checkpoint_saved", path=saved.path)

    def close(self) -> None:
        """Close every room, the last opened first; safe to call twice."""
        if self.explorer is not None:
            self.explorer.close()
        for engine in self.engines:
            engine.close()
        if self.storage is not None:
            self.storage.close()
        if self.trainer is not None:
            self.trainer.close()
        for monitors in self.monitors.values():
            for monitor in monitors:
                monitor.close()
        self.monitors = {}

    def _waiting_experiences(self) -> list[Experience]:
        return list(self.storage.waiting()) if hasattr(self.storage, "waiting") else []
