"""What a run leaves behind, as its caller sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.metrics import Metrics


class RunStatus(Enum):
    """How a run or a stage ended; ``RUNNING`` in ``run.json`` means that it was killed."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """The end of one stage."""

    name: str  # "": a run without stages
    status: RunStatus
    directory: Path
    explore_steps: int = 0
    train_steps: int = 0
    seconds: float = 0.0
    first_evaluation: Metrics = field(default_factory=dict)
    evaluation: Metrics = field(default_factory=dict)
    evaluated_step: int = -1  # explore step of that evaluation; -1: there was none
    buffer: Metrics = field(default_factory=dict)  # what became of a replay buffer's experiences
    checkpoint: Path | None = None  # None: nothing was trained
    best: tuple[tuple[float, int], ...] = ()  # of `trainer.keep_best`: value and train steps
    better_before: float | None = None  # its value before training, if none of these reached it
    failed_attempts: int = 0  # at rollouts, also those whose retry went well
    first_failure: str = ""  # of them, as a line
    plots: tuple[Path, ...] = ()
    was_finished_before: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """The end of a run: its stages in order."""

    directory: Path
    stages: tuple[StageResult, ...]

    @property
    def status(self) -> RunStatus:
        return self.stages[-1].status

    @property
    def exit_code(self) -> int:
        """Return 0 for a finished run, 130 for an interrupted one, 1 otherwise."""
        return {RunStatus.FINISHED: 0, RunStatus.INTERRUPTED: 130}.get(self.status, 1)


def closing_lines(result: RunResult) -> list[str]:
    """Return what a person is told at the end of a run."""
    lines = [""]
    for stage in result.stages:
        lines += _stage_lines(stage)
    plots = [str(plot) for stage in result.stages for plot in stage.plots]
    if plots:
        lines.append(f"plots: {', '.join(plots)}")
    last = result.stages[-1]
    if last.checkpoint is not None:
        actor = last.checkpoint / "actor"
        what = "adapter" if any((actor / "adapter").glob("*/")) else "huggingface"
        lines.append(f"model: {actor / what}")
        for value, step in last.best[:1]:
            best = last.checkpoint.with_name(f"global_step_{step}") / "actor" / what
            lines.append(f"best by trainer.keep_best: {best} ({value:.4g})")
        if last.better_before is not None:
            lines.append(
                f"the best checkpoint is worse than the model before training "
                f"({last.better_before:.4g})"
            )
        if result.status.value == "interrupted":
            lines.append("the same command goes on from there")
    return lines


def _stage_lines(stage: StageResult) -> list[str]:
    name = f"stage {stage.name}" if stage.name else "run"
    was = " (already)" if stage.was_finished_before else ""
    lines = [
        f"{name}: {stage.status.value}{was}, {stage.train_steps} train steps, {stage.seconds:.0f} s"
    ]
    for metric, value in stage.evaluation.items():
        if "/reward/mean@" not in metric and "/success/mean@" not in metric:
            continue
        first = stage.first_evaluation.get(metric)
        told = [f"at the start {first:.3f}"] if first is not None else []
        if stage.status is RunStatus.INTERRUPTED and stage.evaluated_step >= 0:
            told.insert(0, f"after step {stage.evaluated_step}")
        lines.append(f"  {metric} {value:.3f}" + (f" ({', '.join(told)})" if told else ""))
    if stage.failed_attempts:
        lines.append(f"  failed attempts at rollouts (retried ones too): {stage.failed_attempts}")
        lines.append(f"  the first one: {stage.first_failure}")
    if stage.buffer:
        lines.append(f"  {_buffer_line(stage.buffer)}")
    return lines


def _buffer_line(counts: Metrics) -> str:
    """Return what became of the experiences in a replay buffer."""
    lost = {"evicted": "evicted", "given_up": "given up", "too_old": "too old"}
    parts = [f"{counts['written']:.0f} experiences, {counts['uses']:.0f} uses"]
    parts.append(f"{counts['reused']:.0f} of them reuses")
    parts += [f"{counts[name]:.0f} {word}" for name, word in lost.items() if counts[name]]
    parts += [f"{counts['untrained']:.0f} never trained on"] if counts["untrained"] else []
    return f"replay buffer: {', '.join(parts)}"
