"""Evaluate the base model and every checkpoint of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import CheckpointError
from trinity.runtime.observers import record
from trinity.runtime.record.checkpoint import check_model

if TYPE_CHECKING:
    from trinity.common.metrics import Metrics
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.checkpoint import Checkpoint


def run_bench(parts: Parts) -> Metrics:
    """Evaluate the base model, then each checkpoint in order; return the last evaluation.

    With ``explorer.bench_on_latest_checkpoint`` only the newest checkpoint is evaluated. Metrics
    are recorded as ``bench/<taskset>/...`` at the checkpoint's step.

    Raises:
        CheckpointError: the model of one is damaged; nothing was evaluated.
    """
    checkpoints = parts.checkpoints.all()
    if parts.config.explorer.bench_on_latest_checkpoint:
        checkpoints = checkpoints[-1:]
    for checkpoint in checkpoints:
        check_model(checkpoint.huggingface)
    if parts.config.explorer.bench_on_latest_checkpoint:
        return _evaluate(parts, checkpoints[0] if checkpoints else None)
    metrics = _evaluate(parts, None)
    for checkpoint in checkpoints:
        metrics = _evaluate(parts, checkpoint)
    return metrics


def _evaluate(parts: Parts, checkpoint: Checkpoint | None) -> Metrics:
    assert parts.explorer is not None
    step = checkpoint.step if checkpoint else 0
    if checkpoint is not None:
        snapshot = _read_weights(checkpoint)
        for engine in parts.engines:
            engine.load_weights(snapshot)
    evaluated = parts.explorer.evaluate(step)
    metrics = {f"bench/{name.removeprefix('eval/')}": value for name, value in evaluated.items()}
    record(parts, "explorer", metrics, step=step)
    named = re.search(r"global_step_(\d+)(?=/actor/|$)", parts.config.model.model_path)
    of_model = int(named[1]) if named else 0 if parts.checkpoints.all() else None
    parts.display.evaluated(step if checkpoint else of_model, evaluated)
    return evaluated


def _read_weights(checkpoint: Checkpoint) -> WeightSnapshot:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(checkpoint.huggingface.glob("*.safetensors"))
    if not files:
        raise CheckpointError(
            f"{checkpoint.path} holds no model weights. Adapters of several agents are evaluated "
            f"in their run (eval_tasksets), or each as a model: trinity export --adapter NAME."
        )
    tensors = {}
    for file in files:
        try:
            tensors.update(load_file(str(file)))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{file} cannot be read: {error}. Remove {checkpoint.path.name} to evaluate the "
                f"other checkpoints."
            ) from error
    return WeightSnapshot(version=WeightVersion(checkpoint.step), tensors=tensors)
