"""What cannot be found by name in another process, and so travels by value.

The classes that a script or a notebook registered with decorators, functions and objects in
``workflow_args``, and whole plugin folders.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity.extend.held import HELD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.config import Config
    from trinity.extend import PluginManager
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
        """Return whether this machine has the folder with the same files."""
        return self.path.is_dir() and _digest(self.path) == self.digest

    def unpack(self, directory: Path) -> None:
        """Write the files into an empty directory."""
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
    return f"sent to the rooms by value, as your script defines them: {names}"


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
