"""What a process of the run needs to be like the driver's: it travels to every room."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity.extend import PluginManager, set_manager
from trinity.extend.plugin_dir import stand_in
from trinity.runtime.ray.luggage import PackedFolder, folders_of, packed_run, unpacked_run
from trinity.runtime.ray.room import RoomContext
from trinity.runtime.ray.room_log import room_log
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity.common.config import Config
    from trinity.extend.discovery import Admission

# A room has of these what the driver has, also where Ray's own processes were started by others.
_TRAVELLING = (
    *("TRINITY_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "OMP_", "MKL_", "OPENBLAS_"),
    *("GLOO_", "NCCL_"),
)
_NOT_TRAVELLING = {"TRINITY_PLUGIN_DIRS"}  # the folders themselves do


@dataclass(frozen=True, kw_only=True)
class Passport:
    """The run as every process sees it; to read it, nothing of the user's is imported."""

    namespace: str
    directory: Path  # of the stage, absolute
    working_directory: Path
    search_path: tuple[str, ...]  # sys.path of the driver
    environment: Mapping[str, str]
    env_vars: Mapping[str, str]  # explorer.env_vars
    log_level: str
    run: bytes  # the configuration and the classes in hand: read after the search path is set
    folders: tuple[PackedFolder, ...]
    admission: Admission
    prefer: Mapping[str, str]
    is_strict: bool

    @classmethod
    def of(
        cls, config: Config, *, rundir: RunDir, manager: PluginManager, namespace: str
    ) -> Passport:
        """Return the passport of a resolved stage, with a namespace of its own below the run's.

        Raises:
            ConfigError: something in the configuration cannot be sent to another process.
        """
        return cls(
            namespace=f"{namespace}/{secrets.token_hex(4)}",
            directory=rundir.path.absolute(),
            working_directory=Path.cwd(),
            search_path=tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path)),
            environment=_environment(),
            env_vars={name: str(value) for name, value in config.explorer.env_vars.items()},
            log_level=config.log.level,
            run=packed_run(config),
            folders=tuple(PackedFolder.of(folder) for folder in folders_of(manager)),
            admission=manager.admission,
            prefer=dict(manager.prefer),
            is_strict=manager.is_strict,
        )

    def runtime_env(self, env_vars: Mapping[str, str]) -> dict[str, Any] | None:
        """Return Ray's runtime environment of a room; None starts a process faster.

        What only the start of a process reads (``LD_PRELOAD``) has to stand in it; the rest is set
        by :meth:`enter`.
        """
        own = {**self.env_vars, **env_vars}
        return {"env_vars": own} if own else None

    def enter(self, name: str, *, say: Callable[[dict[str, Any]], None]) -> RoomContext:
        """Make this process like the driver's and return what a part learns.

        Args:
            name: of the room: its log is ``logs/<name>.log`` in the run directory.
            say: gets the dict of each log record of WARNING and above.

        Raises:
            ConfigError: the working directory is not on this machine.
            PluginError: a plugin folder cannot be loaded.
        """
        self._take_environment()
        rundir = RunDir(self.directory)
        room_log(rundir.logs / f"{name}.log", level=self.log_level, say=say)
        _enter_directory(self.working_directory)
        sys.path[:] = [*dict.fromkeys([*self.search_path, *sys.path])]
        manager = self._manager()
        set_manager(manager)
        return RoomContext(name=name, config=unpacked_run(self.run), rundir=rundir, manager=manager)

    def _take_environment(self) -> None:
        if "OMP_NUM_THREADS" not in {*self.environment, *self.env_vars}:
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets 1 in a process without a CPU
        os.environ.update({**self.environment, **self.env_vars})
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if "TMPDIR" in self.env_vars:
            tempfile.tempdir = None  # asked for before: Python is to look again

    def _manager(self) -> PluginManager:
        return PluginManager.discover(
            env={"TRINITY_STRICT_PLUGINS": "1"} if self.is_strict else {},
            plugin_dirs=[stand_in(folder.path, _real(folder)) for folder in self.folders],
            disabled=self.admission.disabled,
            autoload=self.admission.autoload,
            allow=self.admission.allow,
            prefer=self.prefer,
        )


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_TRAVELLING) and name not in _NOT_TRAVELLING
    }


def _enter_directory(path: Path) -> None:
    import platform

    try:
        os.chdir(path)
    except OSError as error:
        raise ConfigError(
            f"the working directory {path} is not on node {platform.node()}: {error.strerror}. "
            "Relative paths count from it, so mount it there too, or start the run in a folder "
            "that every node has."
        ) from error


def _real(folder: PackedFolder) -> Path:
    """Return where the folder's files are on this machine, unpacked if they are not there."""
    if folder.is_here:
        return folder.path
    import atexit
    import shutil

    place = Path(tempfile.mkdtemp(prefix="trinity-plugins-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    folder.unpack(place)
    return place
