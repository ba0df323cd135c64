"""Read and write the JSON files of a run: each is whole, or told as damaged.

``state.json``, ``run.json``, ``bench.json``, ``beginning.json`` and ``manifest.json`` end in a
``checksum`` of their other values, so that a changed digit is seen. A file of a run that was made
before there was one is checked by its model alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from trinity.errors import CheckpointError, RunFailedError
from trinity.monitor.jsonl import first_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHECKSUM = "checksum"

Count = Annotated[int, Field(ge=0)]
Metrics = dict[str, float]
_CANNOT_WRITE = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS}


class DamagedError(CheckpointError):
    """A file is there and no longer what was written."""


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")  # a later version may write more


class Mark(_Record):
    """How long a file was, and what it held."""

    size: Count
    digest: str


Marks = dict[str, Count | Mark]  # a number: the size alone, of a run made before there were digests
Beginning = dict[str, Marks]  # beginning.json: by mode


class Manifest(_Record):
    """``manifest.json`` of a checkpoint: its other files by their path."""

    files: dict[str, Mark]


def _before(name: str, **bounds: int) -> Any:  # Any: a field
    """Return a field that versions before 0.2 called by another name; see ``read_progress``."""
    return Field(validation_alias=AliasChoices(*name.split()), **bounds)


class _Progress(_Record):
    explore_steps: int = _before("explore_steps explored", ge=0)
    train_steps: int = _before("train_steps trained", ge=0)
    weights_version: int = _before("weights_version pulled", ge=0)
    last_sync_step: int = _before("last_sync_step synced", ge=0)
    evaluated_step: int = _before("evaluated_step evaluated", ge=-1)
    evaluated_version: int = _before("evaluated_version evaluated_trained", ge=-1)
    tasks_ended_of: Count = 0
    num_due: Count = 0  # of versions before 0.2: rows that may be trained,
    written: list[Count] = []  # and of each later explore step
    trained_experiences: Count
    first_evaluation: Metrics
    evaluation: Metrics


class StateRecord(_Record):
    """``state.json`` of a checkpoint, and ``explorer_state.json``."""

    mode: str
    progress: _Progress
    explorer: dict[str, Any]  # Any: each part's own
    strategy: dict[str, Any]
    storage: dict[str, Any]
    files: Marks
    plugins: list[dict[str, Any]]
    digest: str
    engines: dict[Literal["version"], Count] | None = None  # where they are behind the trainer


class AuditFinding(_Record):
    """What the audit found, the first time."""

    check: str
    parts: str
    step: Count
    message: str


class AdvisorFinding(_Record):
    """What an advisor found."""

    advisor: str
    role: str
    step: Count
    message: str
    remedy: str
    samples: list[str] = []


class StatusRecord(_Record):
    """``run.json`` and ``bench.json``."""

    status: Literal["running", "finished", "interrupted", "failed"]
    stage: str
    mode: str
    asked: Annotated[list[Count | None], Field(min_length=3, max_length=3)]
    explore_steps: Count
    train_steps: Count
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    first_evaluation: Metrics
    evaluation: Metrics
    buffer: Metrics = {}
    audit: list[AuditFinding] = []
    findings: list[AdvisorFinding] = []
    better_before: float | None = None
    failed_attempts: Count = 0
    first_failure: str = ""
    error: str


def finding_line(finding: Mapping[str, Any]) -> str:
    """Return what an advisor found as people read it."""
    samples = ", ".join(finding["samples"])
    shown = f" Samples: {samples}." if samples else ""
    return (
        f"advisor {finding['advisor']} ({finding['role']} step {finding['step']}): "
        f"{finding['message']}. {finding['remedy']}.{shown}"
    )


class HistoryLine(_Record):
    """A line of ``history.jsonl``."""

    step: Annotated[int, Field(ge=1)]
    eids: list[str]


def read_record(path: Path, model: Any, *, remedy: str) -> dict[str, Any]:
    """Return what a JSON file of the run holds, without its checksum (Any: a model; json).

    Args:
        path: the file.
        model: what it must look like.
        remedy: what the user is told to do if it does not.

    Raises:
        DamagedError: it is missing, or not what was written.
        CheckpointError: the system does not let it be read.
    """
    try:
        values = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError(f"{path} is missing. {remedy}") from error
    except IsADirectoryError as error:
        raise DamagedError(f"{path} is a folder, and was a file. {remedy}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:  # no JSON, no text
        raise DamagedError(f"{path} is damaged: it is no JSON ({error}). {remedy}") from error
    problem = _problem(values, model)
    if problem:
        raise DamagedError(f"{path} is damaged: {problem}. {remedy}")
    values.pop(CHECKSUM, None)
    return dict(values)


def write_record(path: Path, values: dict[str, Any]) -> None:
    """Write the values and their checksum, whole or not at all (Any: json)."""
    plain = json.loads(json.dumps(values))  # as a reader sees it: keys are text
    text = json.dumps({**plain, CHECKSUM: _checksum(plain)}, indent=2)
    write_atomically(path, text + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is never seen half-written."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:  # of a write, which names no file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        scratch.unlink(missing_ok=True)


def _problem(values: Any, model: Any) -> str:
    if not isinstance(values, dict):
        return f"it holds no JSON object, but {json.dumps(values)[:40]}"
    plain = {name: value for name, value in values.items() if name != CHECKSUM}
    problem = first_problem(plain, model)
    if not problem and CHECKSUM in values and values[CHECKSUM] != _checksum(plain):
        return "its checksum is not that of its values"
    return problem


def _checksum(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def is_full(error: BaseException) -> bool:
    """Return whether the system said that there is no room, or none that may be written to."""
    return isinstance(error, OSError) and error.errno in _CANNOT_WRITE


@contextmanager
def explained_when_full(directory: Path) -> Iterator[None]:
    """Turn the system's error for a file of the run into one with the place and the remedy.

    Raises:
        RunFailedError: the disk is full, or a file of the run cannot be used.
    """
    try:
        yield
    except OSError as error:
        path = str(error.filename2 or error.filename or "")
        if is_full(error):
            raise RunFailedError(
                f"{path or f'a file of the run in {directory}'} could not be written: "
                f"{error.strerror}. Make room or set checkpoint_root_dir to another disk, then run "
                f"the same command: it continues from the last complete checkpoint."
            ) from error
        if not path or not Path(path).absolute().is_relative_to(directory.absolute()):
            raise
        raise RunFailedError(
            f"{path} cannot be used: {error.strerror}. It belongs to the run: let it be a file (or "
            f"folder) that can be read and written, or move it away, then run the same command."
        ) from error
