"""Write metrics to MLflow."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trinity.common.ports import Monitor
from trinity.errors import ConfigError

from trinity_monitors.package import imported
from trinity_monitors.place import Place
from trinity_monitors.story import Story

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["MlflowMonitor", "refuse_unreachable", "store_uri"]

DEFAULT_URI = "http://localhost:5000"
REACH_S = 5.0
MAX_PARAMS = 100  # of a request
MAX_LETTERS = 500  # of a parameter

_TABLE = ("samples/table",)  # in the file of what the store has


class MlflowMonitor(Monitor):
    """A run of MLflow for each role, called ``<name>_<role>``, in the experiment of the project.

    A run that goes on writes to the same one: its id stands in ``mlflow-<role>.jsonl`` beside
    ``metrics.jsonl``. Steps that are made again are not written again. In names, ``@`` becomes
    ``_at_`` and what else MLflow does not take ``_``.

    Args:
        directory: of the run's metrics.
        role: whose metrics: explorer, trainer, synchronizer.
        uri: of the server, or of a store such as ``sqlite:///mlflow.db``; None:
            ``MLFLOW_TRACKING_URI``, or ``http://localhost:5000``.
        username: None: ``MLFLOW_TRACKING_USERNAME``, or none is asked for.
        password: None: ``MLFLOW_TRACKING_PASSWORD``, or none is asked for.

    Raises:
        ConfigError: the package mlflow is not installed, or nothing answers at the URI.
    """

    def __init__(
        self,
        *,
        directory: Path,
        role: str,
        uri: str | None = None,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        self._mlflow = imported("mlflow")
        for name, value in (("USERNAME", username), ("PASSWORD", password)):
            if value:
                os.environ[f"MLFLOW_TRACKING_{name}"] = value
        where = store_uri(uri)
        refuse_unreachable(where)
        self._client: Any = self._mlflow.MlflowClient(tracking_uri=where)
        self._place = Place(directory / f"mlflow-{role}.jsonl")
        self._is_open = True
        if self._place.run_id:
            self._client.update_run(self._place.run_id, status="RUNNING")
        else:
            self._place.begin(self._new_run(Story.of(directory), role))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one record."""
        if self._place.has(step, metrics):
            return
        now = int(time.time() * 1000)
        values = [
            self._mlflow.entities.Metric(_taken_name(name), value, now, step)
            for name, value in metrics.items()
        ]
        self._client.log_batch(self._place.run_id, metrics=values)
        self._place.note(step, metrics)

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Write the samples of a step as the table ``samples/step-<step>.json``."""
        if not samples or self._place.has(step, _TABLE):
            return
        columns = {name: [row[name] for row in samples] for name in samples[0]}
        file = f"samples/step-{step:06d}.json"
        self._client.log_table(self._place.run_id, data=columns, artifact_file=file)
        self._place.note(step, _TABLE)

    def close(self) -> None:
        """Say that the run is over; safe to call twice."""
        is_open, self._is_open = self._is_open, False
        if is_open:
            self._client.set_terminated(self._place.run_id)

    def _new_run(self, story: Story, role: str) -> str:
        found = self._client.get_experiment_by_name(story.project)
        experiment = found.experiment_id if found else self._client.create_experiment(story.project)
        tags = {"group": story.group or story.name, "role": role}
        run = self._client.create_run(experiment, run_name=story.title(role), tags=tags)
        params = [
            self._mlflow.entities.Param(name, str(value)[:MAX_LETTERS])
            for name, value in story.flat().items()
        ]
        for first in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(run.info.run_id, params=params[first : first + MAX_PARAMS])
        return str(run.info.run_id)


def store_uri(uri: str | None) -> str:
    """Return where runs are written: as given, as the environment says, or the published one."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def refuse_unreachable(uri: str) -> None:
    """Refuse a server that nobody listens at: MLflow itself would try for minutes.

    Raises:
        ConfigError: nobody does.
    """
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"}:
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=REACH_S).close()
    except OSError as error:
        raise ConfigError(
            f"no MLflow server answers at {uri}: {error.strerror or error}. Start one (mlflow "
            "server), or set monitor.monitor_args.uri to another, or to a file such as "
            "sqlite:///mlflow.db"
        ) from error


def _taken_name(name: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))
