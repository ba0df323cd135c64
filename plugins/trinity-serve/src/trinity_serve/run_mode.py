"""The workers of mode ``serve``, all in this process: engines, the front, the store of runs.

agents --> front --> engines <--weights-- trainer
             |                              ^
             +--> store --> explorer --> buffer
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.models.auxiliary import AuxiliaryModel
from trinity.common.models.model import ModelWrapper
from trinity.errors import CheckpointError, ConfigError, DataError
from trinity.runtime.assembly import make_engine, make_experience_pipeline, make_sync
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.record.progress import read_progress
from trinity.runtime.record.records import DamagedError, StateRecord, read_record, write_atomically
from trinity.runtime.record.rundir import EXPLORER_STATE
from trinity_ledger.address import db_path

from trinity_serve.endpoint.service_frontend import ServiceFrontend
from trinity_serve.explorer import ServedExplorer
from trinity_serve.run_store import SqliteRunStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trinity.common.models.chat_format import ChatFormat
    from trinity.runtime.display import Display
    from trinity.runtime.parts import Parts

logger = logging.getLogger("trinity.serve")

KEYS = "TRINITY_SERVE_KEYS"
_SHORTEST_KEY = 8


class ServeMode:
    """Mode ``serve``. LISTENING from the start, then part of a run by :meth:`add_workers`.

    Args:
        parts: of the run, without engines and explorer; the port is freed with them.

    Raises:
        ConfigError: the port is taken, or a key is too short.
        DataError: the store cannot be opened.
    """

    def __init__(self, parts: Parts) -> None:
        explorer = parts.config.explorer
        self._parts = parts
        self._keys, self._has_own_key = _keys(os.environ.get(KEYS, ""))
        self._worker = parts.workers = ServiceFrontend(
            host=explorer.listen_address, port=explorer.proxy_port
        )
        named = db_path(explorer.db_url) if explorer.db_url else None
        buffer = parts.rundir.buffer
        is_expected = (buffer / "serve.id").exists()
        self._store = SqliteRunStore(
            Path(named) if named else buffer / "serve.db",
            service=_identity(buffer / "serve.id"),
            directory=str(parts.rundir.path),
            is_expected=is_expected,
        )

    def add_workers(self, chat_format: ChatFormat) -> None:
        """Add the engines, and the explorer that takes what agents outside make."""
        parts, config = self._parts, self._parts.config
        rollout = config.explorer.rollout_model
        # The trainer works while agents are answered, so no engine shares its module.
        parts.engines = [make_engine(config, parts.manager) for _ in range(rollout.engine_num)]
        models = [
            ModelWrapper(engine, chat_format, rollout, model=config.model)
            for engine in parts.engines
        ]
        made = make_auxiliary_models(config, parts.manager, endpoints=None)
        beside = [one for one in made if isinstance(one, AuxiliaryModel)]
        self._worker.serve(
            models,
            store=self._store,
            keys=self._keys,
            beside=beside,
            logs_requests=rollout.enable_log_requests,
        )
        said = self._startup_lines(models[0].model_name, [one.model.model_name for one in beside])
        parts.explorer = ServedExplorer(
            front=_ToldFront(self._worker, parts.display, said, beside=beside),
            store=self._store,
            pipeline=make_experience_pipeline(
                config, parts.manager, sink=parts.storage, rundir=parts.rundir
            ),
            max_silence_s=config.explorer.max_timeout,
            forget=self._forget,
            is_stopping=lambda: parts.interrupt.is_requested,
        )
        parts.num_explore_steps = sys.maxsize  # as many as there are commits
        if parts.trainer is not None:
            parts.sync = make_sync(config, parts.manager, engines=parts.engines)

    def _forget(self) -> bool:
        try:
            settled, trained = _steps_seen(self._parts)
        except CheckpointError as error:  # a start may yet go on from it
            logger.warning("nothing is forgotten for now: %s", error)
            return False
        before = time.time() - self._parts.config.explorer.keep_runs_s
        return self._store.forget(settled=settled, trained=trained, before=before)

    def _startup_lines(self, model_name: str, beside: Sequence[str]) -> list[str]:
        url = self._worker.url
        lines = [f"serving {model_name!r} at {url}/v1"]
        if beside:
            lines.append(f"beside it, by name and untrained: {', '.join(map(repr, beside))}")
        if self._has_own_key:
            lines.append(f"the key of this start, as {KEYS} is not set: {self._keys[0]}")
        lines.append(f"rewards: POST {url}/feedback; training on them: POST {url}/commit")
        if self._parts.trainer is None:
            lines.append("there is no section trainer: what is committed is stored, not trained")
        return lines


class _ToldFront:
    """The front, which says where it is when it opens."""

    def __init__(
        self,
        worker: ServiceFrontend,
        display: Display,
        lines: Sequence[str],
        *,
        beside: Sequence[AuxiliaryModel],
    ) -> None:
        self._display = display
        self._lines = lines
        self._worker = worker
        self._beside = beside
        self.wait, self.busy, self.forget = worker.wait, worker.busy, worker.forget

    def close(self) -> None:
        """Answer nothing any more, and end the engines of the models beside the served one."""
        self._worker.close()
        for model in self._beside:
            model.close()

    def open(self) -> None:
        """Begin to answer, and say where."""
        self._worker.open()
        for line in self._lines:
            self._display.say(line)


def _steps_seen(parts: Parts) -> tuple[int, int]:
    """Return the last explore step that every checkpoint has seen, and the newest one.

    One that is damaged is none: no start goes on from it.

    Raises:
        CheckpointError: the system does not let one be read.
    """
    if parts.trainer is None:
        place = parts.rundir.path / EXPLORER_STATE
        step = next(_explored([partial(read_record, place, StateRecord, remedy="")]), 0)
        return step, step
    _check_enterable(parts.rundir.path)
    found = [one.read_state for one in parts.checkpoints.all()]
    return next(_explored(found), 0), next(_explored(found[::-1]), 0)


def _check_enterable(directory: Path) -> None:
    """Check that no checkpoint is missed because its folder cannot be entered.

    Raises:
        CheckpointError: the system does not say what is in one.
    """
    for folder in directory.glob("global_step_*"):
        try:
            (folder / "state.json").lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # damaged, or none: whoever reads it says so
        except OSError as error:
            raise CheckpointError(
                f"{folder / 'state.json'} cannot be read: {error.strerror or error}."
            ) from error


def _explored(states: Iterable[Callable[[], dict[str, Any]]]) -> Iterator[int]:
    """Yield the explore step of each state that is whole."""
    for read in states:
        with suppress(DamagedError):
            yield read_progress(read()).explore_steps


def _identity(file: Path) -> str:
    """Return what a run directory is known by, wherever it is moved to.

    Raises:
        DataError: it can be neither read nor written.
    """
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, secrets.token_hex(16))
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DataError(
            f"{file} cannot be used: {error}. Make room and let it be written, then run the same "
            f"command."
        ) from error


def _keys(given: str) -> tuple[list[str], bool]:
    """Return the keys that are let in, and whether the only one was made here.

    Raises:
        ConfigError: one is easily guessed.
    """
    keys = [key for key in re.split(r"[\s,]+", given) if key]
    if any(len(key) < _SHORTEST_KEY for key in keys):
        raise ConfigError(
            f"{KEYS} holds a key of less than {_SHORTEST_KEY} characters, which is easily guessed. "
            f"Use longer ones, with commas between them."
        )
    return (keys, False) if keys else ([f"trs-{secrets.token_urlsafe(24)}"], True)
