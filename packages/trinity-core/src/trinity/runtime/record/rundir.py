"""The folder of a run.

<checkpoint_root_dir>/<project>/[<group>/]<name>/      a run; with stages, one such folder a stage
    run.json                 status, steps done, evaluation, seconds: what a second start reads
    bench.json               the same of the last run in mode bench
    config.yaml              the configuration as it was resolved, each value; interpolations as
                             they are written, secrets masked
    resolved.json            what that does not say: values of interpolations, digests of secrets
    origins.json             where each value of it came from
    plugins.json             the plugin set: distribution, version, source
    starts.jsonl             one line a start: when, with which plugins, what was changed
    provenance.jsonl         the same of git: commits, and provenance/*.diff beside it (trinity-lab)
    trinity.log              the log
    logs/<worker>.log          over Ray: what each worker logs and prints
    history.jsonl            the experiences that each optimizer step trained (history.py)
    samples/                 what each optimizer step trained (samples.py)
    evaluations/<set>/       the rollouts of each evaluation; bench/<set>/ in mode bench
    run.lock                 who has the folder while a run is going (lock.py); .run.lock guards it
    run.memory               how much memory it has used, if it was killed (memory_record.py)
    run.lock.trainer         who has the trainer's part, where explorers are runs of their own,
    run.lock.<explorer>      and who an explorer's part
    explorers/<name>/        that part, with files as here
    weights/v<N>/            what the trainer of such a run hands to its explorers
    beginning.json           how long files were before the first step (rewind.py)
    monitor/metrics.jsonl    one line a step and role; tensorboard/ beside it
    buffer/                  experiences that a file storage keeps
    buffer/ledger.id         by which a ledger knows this folder from others of its name
    plots/reward.png success.png loss.png
    profile/<time>/<worker>.svg what trinity perf --profile wrote
    global_step_<N>/         a checkpoint, complete or absent (checkpoint.py)
    global_step_<N>.damaged/ one that was found damaged, and that the run went back from
    latest_checkpointed_iteration.txt
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.kept import RESOLVED, kept_files
from trinity.common.secrets import masked_values
from trinity.errors import ConfigError
from trinity.runtime.record.records import StatusRecord, read_record, write_atomically, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.config import Config

EXPLORER_STATE = "explorer_state.json"  # where a run without a trainer keeps its place


@dataclass(frozen=True)
class RunDir:
    """The paths of one run, or of one stage of it."""

    path: Path

    @classmethod
    def of(cls, config: Config) -> RunDir:
        """Return where this configuration's run lives; relative to the working directory."""
        root = Path(config.checkpoint_root_dir or "checkpoints")
        parts = [part for part in (config.project, config.group, config.name) if part]
        return cls(root.joinpath(*parts))

    def stage(self, name: str) -> RunDir:
        return RunDir(self.path / name)

    def explorer(self, name: str) -> RunDir:
        return RunDir(self.path / "explorers" / name)

    @property
    def monitor(self) -> Path:
        return self.path / "monitor"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def buffer(self) -> Path:
        return self.path / "buffer"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    def create(self, *, is_private: bool = False) -> None:
        """Make the folder and show that it can be written to.

        Args:
            is_private: let nobody else read it, unless its owner has said so since it was made.

        Raises:
            ConfigError: it cannot.
        """
        try:
            mode = 0o700 if is_private else 0o777
            self.path.mkdir(mode, parents=True, exist_ok=True)
            if is_private and not (self.path / RESOLVED).exists():  # new, or with plain secrets
                self.path.chmod(0o700)
            probe = self.path / ".writable"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"the run directory {self.path} cannot be written: {error.strerror or error}. "
                f"Set checkpoint_root_dir to a folder that you may write to."
            ) from error

    def is_used(self) -> bool:
        return self.path.is_dir() and any(self.path.iterdir())

    def read_status(self, *, mode: str) -> dict[str, Any]:
        """Return how the last run ended, empty if there was none (Any: json).

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self._status_file(mode)
        if not os.path.lexists(path):
            return {}
        remedy = "Remove it: the run goes on from its last checkpoint."
        return read_record(path, StatusRecord, remedy=remedy)

    def write_status(self, status: dict[str, Any], *, mode: str) -> None:
        write_record(self._status_file(mode), masked_values(status))

    def _status_file(self, mode: str) -> Path:
        return self.path / ("bench.json" if mode == "bench" else "run.json")


def write_manifests(
    config: Config, *, plugins: Sequence[Mapping[str, object]], directory: Path
) -> None:
    """Write down the configuration as it was resolved, and the plugin set."""
    for name, text in kept_files(config).items():
        write_atomically(directory / name, text)
    origins = json.dumps(config.origins, indent=2)
    write_atomically(directory / "origins.json", origins + "\n")
    write_atomically(directory / "plugins.json", json.dumps(plugins, indent=2) + "\n")


def with_stages(directory: Path) -> list[Path]:
    """Return the folder; of a run with stages, theirs as they began. Other runs are no stages."""
    if (directory / "run.json").exists() or (directory / "explorers").exists():
        return [directory]
    found = [one for one in directory.glob("*/run.json") if b'"stage": ""' not in one.read_bytes()]
    configs = [one for path in found if (one := path.with_name("config.yaml")).exists()]
    stages = [one.parent for one in sorted(configs, key=lambda one: one.stat().st_mtime)]
    return stages or [directory]


def run_directory(
    first: Config, given: Config, *, say: Callable[[str], None], holds_secrets: bool
) -> RunDir:
    """Return the folder to use; a used one is left alone if the run is to start anew."""
    rundir = RunDir(RunDir.of(given).path.absolute())
    if not first.continue_from_checkpoint and rundir.is_used():
        path = rundir.path
        renamed = RunDir(path.with_name(f"{path.name}_{time.strftime('%Y%m%d%H%M%S')}"))
        say(
            f"{rundir.path} holds a run and continue_from_checkpoint is false: "
            f"this one goes to {renamed.path}"
        )
        rundir = renamed
    rundir.create(is_private=holds_secrets)
    return rundir
