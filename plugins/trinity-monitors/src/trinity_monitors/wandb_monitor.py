"""Write metrics to Weights & Biases."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.common.ports import Monitor

from trinity_monitors.package import imported
from trinity_monitors.place import Place
from trinity_monitors.story import Story

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["WandbMonitor"]

_TABLE = ("samples/table",)  # in the file of what the service has


class WandbMonitor(Monitor):
    """A run of Weights & Biases for each role, called ``<name>_<role>``, in one group.

    A run that goes on writes to the same one: its id stands in ``wandb-<role>.jsonl`` beside
    ``metrics.jsonl``. Steps that are made again are not written again. Charts are drawn over the
    metric ``step``: rows of the service only go forward, and ``mode: bench`` goes back to step 0.

    Args:
        directory: of the run's metrics.
        role: whose metrics: explorer, trainer, synchronizer.
        base_url: of the server; None: ``WANDB_BASE_URL``, or the public one.
        api_key: None: ``WANDB_API_KEY``, or what ``wandb login`` stored.
        mode: ``offline`` writes below the run directory, for ``wandb sync``; None: ``WANDB_MODE``,
            or online.

    Raises:
        ConfigError: the package wandb is not installed.
    """

    conformance_args: ClassVar = {"mode": "offline"}

    def __init__(
        self,
        *,
        directory: Path,
        role: str,
        base_url: str | None = None,
        api_key: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
    ) -> None:
        wandb = imported("wandb")
        self._place = Place(directory / f"wandb-{role}.jsonl")
        self._table = wandb.Table
        self._open: list[tuple[int, list[str]]] = []  # records of the step that is not complete
        if not self._place.run_id:
            self._place.begin(secrets.token_hex(4))
        story = Story.of(directory)
        given = {"base_url": base_url, "api_key": api_key}
        settings = {"silent": True, "console": "off"}
        settings |= {name: value for name, value in given.items() if value}
        self._run: Any = wandb.init(
            id=self._place.run_id,
            resume="allow",
            project=story.project,
            group=story.group or story.name,
            name=story.title(role),
            tags=[role],
            config=story.settings,
            dir=str(directory),
            mode=mode,
            reinit="create_new",  # the other roles have a run of their own in this process
            save_code=False,
            settings=wandb.Settings(**settings),
        )
        self._run.define_metric("*", step_metric="step")
        self._row = (-1, self._run.step - 1)  # the last step, and its row of the service

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one record; a step is complete when the next one begins."""
        if self._place.has(step, metrics):
            return
        self._begin(step)
        self._run.log({**metrics, "step": step}, step=self._row[1])
        self._open.append((step, list(metrics)))

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Write the samples of a step as the table ``samples``."""
        if not samples or self._place.has(step, _TABLE):
            return
        columns = list(samples[0])
        table = self._table(columns=columns, data=[[row[c] for c in columns] for row in samples])
        self._begin(step)
        self._run.log({"samples": table, "step": step}, step=self._row[1])
        self._open.append((step, list(_TABLE)))

    def close(self) -> None:
        """Write out the last step and end the run; safe to call twice."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
            self._complete()

    def _begin(self, step: int) -> None:
        if self._open and self._open[-1][0] != step:
            self._complete()
        if step != self._row[0]:
            self._row = (step, max(step, self._row[1] + 1))

    def _complete(self) -> None:
        for step, names in self._open:
            self._place.note(step, names)
        self._open.clear()
