"""Keep what each optimizer step trained, for people to look at.

    experiences, and the batch that the trainer made of them --> samples/from-<step>.bin
    experiences of an evaluation --> evaluations/<set>/from-<explore step>.bin

``buffer.record_samples`` turns it off, ``buffer.max_samples_gb`` bounds it: the oldest file goes
first. No run needs them: what cannot be written is told once and left out, and a start cuts off
what is after its checkpoint (``sample_files.py``).
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.common.codec import Column, joined_column
from trinity.common.models.recorded_calls import REPLY_NAMES
from trinity.common.workflows.recorded_env import ENVIRONMENT
from trinity.runtime.observers import Observer
from trinity.runtime.record.history import append_whole
from trinity.runtime.record.sample_files import (
    FOLDER,
    encode,
    evaluation_file,
    evaluation_files,
    part_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trinity.common.batch import ExperienceBatch
    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.extend import PluginManager
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)

GB = 10**9
_NUM_PARTS = 16  # so much of all is given up at once
_MAX_NOTE = 300  # characters of an entry of info that is kept
_FIELDS = {
    "tokens": "tokens",
    "logprobs": "logprobs",
    "advantages": "advantages",
    "token_rewards": "token_level_reward",
}
_OF_BATCH = {"mask": "action_mask", "advantages": "advantages"}
_KNOWN = {"plugins", ENVIRONMENT}  # entries of info that are kept elsewhere
_WHOLE = {REPLY_NAMES}  # those that are kept however long they are


class SampleLog(Observer):
    """Writes the samples of one stage; never raises.

    Args:
        directory: of the run.
        limit: bytes of all samples.
        batch: gives what the last step made of its experiences; None: nobody says, and they stand
            for it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limit: int,
        batch: Callable[[], ExperienceBatch | None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._limit = limit
        self._batch = batch
        self._is_off = False

    @classmethod
    def of(
        cls, config: Config, manager: PluginManager, *, trainer: Any, rundir: RunDir
    ) -> SampleLog | None:
        """Return the log that a configuration asks for; None: it asks for none.

        Args:
            config: of the stage.
            manager: of the plugins.
            trainer: whose batches it keeps (Any: with the abilities of its kind).
            rundir: of the stage.
        """
        if not config.buffer.record_samples:
            return None
        limit = int(config.buffer.max_samples_gb * GB)
        return cls(rundir.path, limit=limit, batch=trainer.trained_batch)

    def trained(self, step: int, experiences: Sequence[Experience]) -> None:
        if self._is_off:
            return
        try:
            batch = self._batch()
            rows = experiences if batch is None else batch.experiences
            self._write(step, encode(step, _rows(rows), _columns(rows, batch)))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the run goes on
            self._stop(f"{type(error).__name__}: {error}")

    def _write(self, step: int, block: bytes) -> None:
        if len(block) > self._limit:
            self._stop(f"step {step} alone has {len(block):,} bytes. Raise buffer.max_samples_gb")
            return
        parts = part_files(self._directory)
        sizes = [path.stat().st_size for path in parts]
        if not parts or sizes[-1] + len(block) > max(self._limit // _NUM_PARTS, 1):
            folder = self._directory / FOLDER
            folder.mkdir(exist_ok=True)
            parts.append(folder / f"from-{step:08d}.bin")
            sizes.append(0)
        while sum(sizes) + len(block) > self._limit:
            parts.pop(0).unlink()
            sizes.pop(0)
        append_whole(parts[-1], block)

    def _stop(self, why: str) -> None:
        self._is_off = True
        logger.warning(
            "what is trained is kept no more in %s: %s. The run goes on without it.",
            self._directory / FOLDER, " ".join(why.split()),
        )  # fmt: skip


class EvaluationLog:
    """Writes the samples of evaluations, a file for each; never raises.

    An evaluation that is made again after a kill replaces its file. Ids are
    ``step/task/run/step of the run``, so that those of a task are together as in training.

    Args:
        directory: of the run.
        limit: bytes of all evaluations; the oldest goes first.
        is_bench: whether these are checkpoints, by train steps.
    """

    def __init__(self, directory: Path, *, limit: int, is_bench: bool) -> None:
        self._directory, self._limit, self._is_bench = directory, limit, is_bench

    def evaluated(self, step: int, taskset: str, experiences: Sequence[Experience]) -> None:
        """Keep the rollouts of an evaluation."""
        try:
            rows = _rows(experiences)
            for row, experience in zip(rows, experiences, strict=True):
                eid = replace(experience.eid, batch=step)
                row["eid"] = eid.uid
            block = encode(step, rows, _columns(experiences, None))
            self._free_space(len(block))
            path = evaluation_file(self._directory, taskset, step=step, is_bench=self._is_bench)
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(".tmp")
            scratch.write_bytes(block)
            scratch.replace(path)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the run goes on
            logger.warning("the samples of an evaluation are not kept: %s", error)

    def _free_space(self, size: int) -> None:
        kept = [(one.path, one.path.stat().st_size) for one in evaluation_files(self._directory)]
        while kept and sum(size for _, size in kept) + size > self._limit:
            kept.pop(0)[0].unlink()


def _rows(experiences: Sequence[Experience]) -> list[dict[str, Any]]:  # Any: json
    return [
        {
            "eid": experience.eid.uid,
            "length": len(experience.tokens),
            "prompt_length": experience.prompt_length,
            "reward": experience.reward,
            "temperature": experience.temperature,
            "truncate_status": experience.truncate_status,
            "metrics": experience.metrics,
            "info": _small(experience.info),
            **_environment(experience),
        }
        for experience in experiences
    ]


def _environment(experience: Experience) -> dict[str, str]:
    kept = experience.info.get(ENVIRONMENT)
    return {"environment": kept} if isinstance(kept, str) else {}


def _columns(experiences: Sequence[Experience], batch: ExperienceBatch | None) -> dict[str, Column]:
    import torch

    joined = {name: joined_column(experiences, field) for name, field in _FIELDS.items()}
    columns = {name: column for name, column in joined.items() if column is not None}
    lengths = [experience.response_length for experience in experiences]
    columns["mask"] = _masks(experiences, lengths)
    width = max(lengths, default=0)
    is_response_BR = torch.arange(width) < torch.tensor(lengths, dtype=torch.int64)[:, None]
    for name, field in _OF_BATCH.items():
        if batch is not None and field in batch.batch:
            dtype = torch.bool if name == "mask" else torch.float32
            values_BR = batch.batch[field].detach().cpu()[:, :width].to(dtype)
            trained = Column(values_BR[is_response_BR].numpy(), columns["mask"].sizes)
            if name == "mask" and not trained.is_same(columns["mask"]):
                columns["own_mask"] = columns["mask"]
            columns[name] = trained
    return columns


def _masks(experiences: Sequence[Experience], lengths: list[int]) -> Column:
    masks = [experience.action_mask for experience in experiences]
    values = [
        np.zeros(length, dtype=bool) if mask is None else mask.numpy()
        for mask, length in zip(masks, lengths, strict=True)
    ]
    joined = np.concatenate(values) if values else np.zeros(0, dtype=bool)
    return Column(joined, np.array(lengths, dtype=np.int32))


def _small(info: dict[str, Any]) -> dict[str, Any]:  # Any: the workflow's own data; json
    """Return the entries that JSON holds in a few characters."""
    kept = {}
    for name, value in info.items():
        if name in _KNOWN:
            continue
        if isinstance(value, (bool, int, float)) or value is None or name in _WHOLE:
            kept[name] = value
            continue
        try:
            text = json.dumps(value)
        except (TypeError, ValueError):
            continue
        if len(text) <= _MAX_NOTE:
            kept[name] = value
    return kept
