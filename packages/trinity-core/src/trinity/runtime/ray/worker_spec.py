"""What a process of the run needs to be like the driver's: it travels to every worker by value.

The classes that a script or a notebook registered with decorators, functions and objects in
``workflow_args``, and whole plugin folders.
"""

from __future__ import annotations

import io
import os
import pickle
import secrets
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.secrets import known_secrets, masked, remember
from trinity.errors import ConfigError
from trinity.extend import PluginManager, set_manager
from trinity.extend.held import HELD
from trinity.extend.plugin_dir import stand_in
from trinity.runtime.environment import mask_late_secrets
from trinity.runtime.ray.worker import WorkerContext, worker_log
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.extend.discovery import Admission
    from trinity.extend.held import HeldClass


@dataclass(frozen=True, kw_only=True)
class PackedFolder:
    """A plugin folder as it is on the driver's machine."""

    path: Path  # there
    digest: str
    archive: bytes  # zip

    @classmethod
    def of(cls, path: Path) -> PackedFolder:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for name in _files(path):
                packed.write(path / name, name)
        return cls(path=path, digest=_digest(path), archive=archive.getvalue())

    @property
    def is_here(self) -> bool:
        return self.path.is_dir() and _digest(self.path) == self.digest

    def unpack(self, directory: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(self.archive)) as packed:
            packed.extractall(directory)


def folders_of(manager: PluginManager) -> list[Path]:
    """Return the plugin folders that the manager reads, in its order."""
    records = [plugin.record for plugin in manager.found]
    paths = [r.path for r in records if r.source == "plugin-dir" and r.path is not None]
    return [Path(folder) for folder in dict.fromkeys(str(Path(path).parent) for path in paths)]


def packed_run(config: Config) -> bytes:
    """Return the configuration and the classes in hand; what ``__main__`` defines goes by value.

    Raises:
        ConfigError: something in the configuration cannot travel.
    """
    from ray import cloudpickle

    held = _users_classes()
    with _by_value(held):
        try:
            return bytes(cloudpickle.dumps((config, held)))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigError(_unsendable(config, held, error)) from error


def unpacked_run(data: bytes) -> Config:
    """Return the configuration; the classes are in this process's hand from now on."""
    config, held = pickle.loads(data)
    for entry in held:
        HELD.add(entry, force=True)
    return config  # type: ignore[no-any-return]


def value_line() -> str:
    """Return the line of the header about classes that travel by value; empty: there are none."""
    own = [e for e in _users_classes() if not _is_importable(e.value.__module__)]
    if not own:
        return ""
    names = ", ".join(f"{entry.kind} {entry.name} ({entry.target})" for entry in own)
    return f"sent to the workers by value, as your script defines them: {names}"


def _users_classes() -> list[HeldClass]:
    """Return what no plugin registered: a plugin registers its own in every process."""
    return [entry for entry in HELD.all() if entry.owner is None]


@contextmanager
def _by_value(held: Sequence[HeldClass]) -> Iterator[None]:
    """Let cloudpickle send the modules that no other process can import; ``__main__`` it does."""
    from ray import cloudpickle

    names = {entry.value.__module__ for entry in held} - {"__main__"}
    modules = [sys.modules[name] for name in sorted(names) if not _is_importable(name)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _is_importable(module: str) -> bool:
    """Return whether another process with our search path finds the module by its name."""
    if module == "__main__":
        return False
    return PathFinder.find_spec(module.partition(".")[0], sys.path) is not None


def _unsendable(config: Config, held: Sequence[HeldClass], error: Exception) -> str:
    from ray import cloudpickle

    def fails(value: object) -> bool:
        try:
            cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 -- whatever an object of the user's does
            return True
        return False

    names = [f"{entry.kind} {entry.name}" for entry in held if fails(entry)]
    names += [path for path, value in _leaves(dict(config), "") if fails(value)]
    return (
        f"{', '.join(names) or 'the configuration'} cannot be sent to another process: "
        f"{type(error).__name__}: {error}. Give a function that makes it there, or run with "
        "--local (in Python: local=True)."
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:  # Any: a configuration's values
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        value = dict(value)
    elif isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from _leaves(inner, f"{path}.{name}" if path else str(name))


def _files(path: Path) -> list[str]:
    """Return the files that make the plugins, sorted; no byte code, nothing hidden."""
    found = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
    kept = [f for f in found if not any(p == "__pycache__" or p[0] == "." for p in f.parts)]
    return sorted(file.as_posix() for file in kept)


def _digest(path: Path) -> str:
    content = sha256()
    for name in _files(path):
        content.update(f"{name}\n".encode())
        content.update((path / name).read_bytes())
    return content.hexdigest()


# A worker has of these what the driver has, also where Ray's own processes were started by others;
# and the variables that the configuration names, as ``api_key_env: JUDGE_KEY`` does.
_TRAVELLING = (
    *("TRINITY_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "OMP_", "MKL_", "OPENBLAS_"),
    *("GLOO_", "NCCL_"),
)
_NOT_TRAVELLING = {"TRINITY_PLUGIN_DIRS"}  # the folders themselves do


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """The run as every process sees it; to read it, nothing of the user's is imported."""

    namespace: str
    directory: Path  # of the stage, absolute
    working_directory: Path
    search_path: tuple[str, ...]  # sys.path of the driver
    environment: Mapping[str, str]
    env_vars: Mapping[str, str]  # explorer.env_vars
    log_level: str
    secrets: tuple[str, ...]  # that are masked in all that a process writes
    run: bytes  # the configuration and the classes in hand: read after the search path is set
    folders: tuple[PackedFolder, ...]
    admission: Admission
    prefer: Mapping[str, str]
    is_strict: bool

    @classmethod
    def of(
        cls, config: Config, *, rundir: RunDir, manager: PluginManager, namespace: str
    ) -> WorkerSpec:
        """Return the worker_spec of a resolved stage, with a namespace of its own below the run's.

        Raises:
            ConfigError: something in the configuration cannot be sent to another process.
        """
        return cls(
            namespace=f"{namespace}/{secrets.token_hex(4)}",
            directory=rundir.path.absolute(),
            working_directory=Path.cwd(),
            search_path=tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path)),
            environment=_environment(config),
            env_vars={name: str(value) for name, value in config.explorer.env_vars.items()},
            log_level=config.log.level,
            secrets=known_secrets(),
            run=packed_run(config),
            folders=tuple(PackedFolder.of(folder) for folder in folders_of(manager)),
            admission=manager.admission,
            prefer=dict(manager.prefer),
            is_strict=manager.is_strict,
        )

    def runtime_env(self, env_vars: Mapping[str, str]) -> dict[str, Any] | None:
        """Return Ray's runtime environment of a worker; None starts a process faster.

        What only the start of a process reads (``LD_PRELOAD``) has to stand in it; the rest is set
        by :meth:`enter`, and so are secrets, as Ray logs this.
        """
        given = {**self.env_vars, **env_vars}
        own = {name: value for name, value in given.items() if masked(value) == value}
        return {"env_vars": own} if own else None

    def enter(self, name: str, *, say: Callable[[dict[str, Any]], None]) -> WorkerContext:
        """Make this process like the driver's and return what a part learns.

        Args:
            name: of the worker: its log is ``logs/<name>.log`` in the run directory.
            say: gets the dict of each log record of WARNING and above.

        Raises:
            ConfigError: the working directory is not on this machine.
            PluginError: a plugin folder cannot be loaded.
        """
        self._take_environment()
        remember(self.secrets)
        mask_late_secrets()
        rundir = RunDir(self.directory)
        worker_log(rundir.logs / f"{name}.log", level=self.log_level, say=say)
        _enter_directory(self.working_directory)
        sys.path[:] = [*dict.fromkeys([*self.search_path, *sys.path])]
        manager = self._manager()
        set_manager(manager)
        return WorkerContext(
            name=name, config=unpacked_run(self.run), rundir=rundir, manager=manager
        )

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


def _environment(config: Config) -> dict[str, str]:
    leaves = _leaves(dict(config), "")
    named = {value for path, value in leaves if path.endswith("_env") and isinstance(value, str)}
    return {
        name: value
        for name, value in os.environ.items()
        if name in named or (name.startswith(_TRAVELLING) and name not in _NOT_TRAVELLING)
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
