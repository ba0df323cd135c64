"""Write down what each optimizer step trained.

    ids of the experiences --> history.jsonl, a line {"step": 3, "eids": ["2/0/0/0", ...]} a step
    experiences, and the batch that the trainer made of them --> samples/from-<step>.bin

The history is always that of the weights that there are: it is cut back together with them
(``rewind.py``), as its last line may be of a step that a killed run trains again.

Samples are for people. ``buffer.record_samples`` turns them off, ``buffer.max_samples_gb`` bounds
them: the oldest file goes first. What cannot be written is told once and left out; a start cuts off
what is after its checkpoint. ``sample_files.py`` reads them and has their format.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.common.columns import Column, joined_column, pack
from trinity.common.models.recorded_calls import REPLY_NAMES
from trinity.common.value_checks import shortened
from trinity.common.workflows.recorded_env import ENVIRONMENT
from trinity.errors import CheckpointError
from trinity.monitor.jsonl import append_whole
from trinity.runtime.observers import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trinity.common.batch import ExperienceBatch
    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.extend import PluginManager
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)

HISTORY = "history.jsonl"
FOLDER = "samples"
PART_FILES = "from-*.bin"
MAGIC = b"TRINITY-SAMPLES "
FORMAT = 2
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

Row = dict[str, Any]  # Any: json


class TrainedHistory(Observer):
    """Writes the history of one stage."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / HISTORY

    def trained(self, step: int, experiences: Sequence[Experience]) -> None:
        """Add an optimizer step: one line in one write, so that a kill leaves it out or whole."""
        eids = [experience.eid.uid for experience in experiences]
        line = (json.dumps({"step": step, "eids": eids}) + "\n").encode()
        try:
            append_whole(self._path, line)
        except OSError as error:
            raise CheckpointError(
                f"{self._path} cannot be written: {error.strerror or error}. Make room, then run "
                f"the same command: it continues from the last complete checkpoint."
            ) from error


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
            self._write(step, encode(step, sample_rows(rows), sample_columns(rows, batch)))
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


def part_files(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / FOLDER).glob(PART_FILES) if path.is_file())


def encode(step: int, rows: Sequence[Row], columns: Mapping[str, Column]) -> bytes:
    """Return the block of a step.

    Args:
        step: the optimizer step.
        rows: the fields of each :class:`Sample` that are no arrays, and ``length``, its tokens.
        columns: the others by name. ``own_mask`` may be left out where it is the same as ``mask``.
    """
    text, body = pack(rows, columns, dumps=_json, is_small=True)
    crc = zlib.crc32(body, zlib.crc32(text))
    numbers = (FORMAT, step, len(rows), len(text), len(body), crc)
    return b"".join([MAGIC, b"%d %12d %8d %12d %12d %08x\n" % numbers, text, body])


def _json(content: dict[str, Any]) -> str:  # Any: json
    try:
        return json.dumps(content, default=_text, allow_nan=False)
    except ValueError:  # numbers that JSON cannot hold
        return json.dumps(_finite(content), default=_text)


def _text(value: Any) -> str:  # Any: what a workflow noted
    return shortened(str(value))


def _finite(value: Any) -> Any:  # Any: json
    """Return the value with null for numbers that JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value


def sample_rows(experiences: Sequence[Experience]) -> list[dict[str, Any]]:  # Any: json
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


def sample_columns(
    experiences: Sequence[Experience], batch: ExperienceBatch | None
) -> dict[str, Column]:
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
