"""Write metrics to Trackio."""

from __future__ import annotations

import contextvars
import secrets
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.ports import Monitor

from trinity_monitors.package import imported
from trinity_monitors.place import Place
from trinity_monitors.story import Story

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["TrackioMonitor"]

_TABLE = ("samples/table",)  # in the file of what the service has


class TrackioMonitor(Monitor):
    """A run of Trackio for each role, called ``<name>_<role>-<id>``, in one group.

    A run that goes on writes to the same one: its name stands in ``trackio-<role>.jsonl`` beside
    ``metrics.jsonl``. Steps that are made again are not written again. Metrics go to a database
    below ``TRACKIO_DIR`` on this machine; ``trackio show`` opens it.

    Args:
        directory: of the run's metrics.
        role: whose metrics: explorer, trainer, synchronizer.
        space_id: Hugging Face Space that takes the metrics, too; None: ``TRACKIO_SPACE_ID``, or
            this machine alone.
        server_url: a server of one's own; None: ``TRACKIO_SERVER_URL``, or none.

    Raises:
        ConfigError: the package trackio is not installed.
    """

    conformance_args: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        *,
        directory: Path,
        role: str,
        space_id: str | None = None,
        server_url: str | None = None,
    ) -> None:
        trackio = imported("trackio")
        self._table = trackio.Table
        self._place = Place(directory / f"trackio-{role}.jsonl")
        story = Story.of(directory)
        if not self._place.run_id:
            self._place.begin(f"{story.title(role)}-{secrets.token_hex(4)}")
        options = {
            "project": story.project,
            "name": self._place.run_id,
            "group": story.group or story.name,
            "config": story.flat() | {"role": role},
            "resume": "allow",
            "space_id": space_id,
            "server_url": server_url,
            "embed": False,
            "auto_log_gpu": False,
            "auto_log_cpu": False,
        }
        # In a context of its own: `init` ends the run that it finds, and that is another role's.
        with redirect_stdout(StringIO()):
            self._run: Any = contextvars.Context().run(trackio.init, **options)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one record."""
        if self._place.has(step, metrics):
            return
        self._run.log(dict(metrics), step=step)
        self._place.note(step, metrics)

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Write the samples of a step as the table ``samples``."""
        if not samples or self._place.has(step, _TABLE):
            return
        columns = list(samples[0])
        data = [[row[name] for name in columns] for row in samples]
        self._run.log({"samples": self._table(columns=columns, data=data)}, step=step)
        self._place.note(step, _TABLE)

    def close(self) -> None:
        """Write out what is left and end the run; safe to call twice."""
        run, self._run = self._run, None
        if run is not None:
            with redirect_stdout(StringIO()):
                run.finish()
