"""Fixtures for plugin authors; import those you want in your conftest.py.

from trinity_testing.fixtures import no_discovery, throwaway_plugin  # noqa: F401
"""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from trinity.errors import PluginError
from trinity.extend import PluginManager, get_manager, set_manager
from trinity.extend.known import install_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity_debug.session import Debugged

__all__ = ["no_discovery", "replay", "throwaway_plugin", "write_distribution"]

PluginInstaller = Callable[..., PluginManager]


@pytest.fixture
def no_discovery(monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginManager]:
    """Refuse discovery: the core's own parts are there, and whoever looks for more fails the test.

    Gives the manager that holds them, which is the process's during the test.
    """
    own = metadata.distribution("trinity-core").entry_points.select(group="trinity.plugins")
    manager = PluginManager.discover(env={}, autoload=False, entry_points=own)
    places: list[str] = []

    def refuse(*_: object, **__: object) -> NoReturn:
        frame = sys._getframe(1)
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        pytest.fail(_refusal(places), pytrace=False)

    before = set_manager(manager)
    monkeypatch.setattr(PluginManager, "discover", refuse)
    yield manager
    set_manager(before)
    if places:  # where the failure was caught, the test fails all the same
        pytest.fail(_refusal(places), pytrace=False)


@pytest.fixture
def throwaway_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginInstaller]:
    """Give a function that installs a plugin for this test only.

    ``throwaway_plugin("dull", {"dull_plugin.py": source})`` writes the modules and the metadata of
    the distribution ``trinity-dull`` into a temporary folder, puts it on the path of this process
    and of those that it starts, discovers anew, and returns the manager. The first module is the
    plugin module.
    """
    before = get_manager()
    modules: list[str] = []

    def install(name: str, files: Mapping[str, str], **metadata: str) -> PluginManager:
        folder = tmp_path / f"site-{name}"
        write_distribution(folder, name=name, files=files, **metadata)
        modules.extend(Path(file).parts[0].removesuffix(".py") for file in files)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        importlib.invalidate_caches()
        manager = PluginManager.discover(env={})
        set_manager(manager)
        return manager

    yield install
    set_manager(before)
    for module in [one for one in sys.modules if one.partition(".")[0] in modules]:
        del sys.modules[module]


@pytest.fixture
def replay() -> Callable[..., Debugged]:
    """Give a function that runs a recorded try again with the replies that were sampled then.

    ``assert replay("run.yaml", "checkpoints/p/n/3/7/0").difference is None``: the workflow of the
    configuration makes the same calls with the same prompts, token for token, and ends with the
    same reward. No model is loaded. Settings follow: ``replay(config, place, "seed=3")``.
    """

    def run(config: str | Path, place: str | Path, *settings: str) -> Debugged:
        from trinity.common.config import load_config

        try:
            from trinity_debug.session import DebugRequest, debug
        except ModuleNotFoundError as error:
            line = install_line("trinity-debug")
            raise PluginError(f"the fixture replay needs trinity-debug. Run: {line}") from error

        return debug(load_config(config, overrides=settings), DebugRequest(replay=Path(place)))

    return run


def _refusal(places: Sequence[str]) -> str:
    return (
        f"plugins were looked for at {' and '.join(dict.fromkeys(places))}, and this test refuses "
        "it (fixture no_discovery). Use get_manager(), or hand the manager in."
    )


def write_distribution(  # noqa: PLR0913 -- the options of a builder
    folder: Path,
    *,
    name: str,
    files: Mapping[str, str],
    version: str = "1.0",
    requires: str = "trinity-core>=0.1,<0.2",
    license_expression: str = "Apache-2.0",
    summary: str = "A throw-away plugin",
) -> Path:
    """Write modules with the metadata of ``trinity-<name>`` into a folder, as pip would.

    Args:
        folder: where, made if missing.
        name: of the entry point.
        files: text by path; the first is the plugin module.
        version: of the distribution.
        requires: its requirement; empty: none.
        license_expression: its licence; empty: none.
        summary: one line; empty: none.
    """
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    about = folder / f"trinity_{name}-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    lines = {
        "Metadata-Version": "2.4",
        "Name": f"trinity-{name}",
        "Version": version,
        "Summary": summary,
        "Requires-Python": ">=3.11",
        "License-Expression": license_expression,
        "Requires-Dist": requires,
    }
    text = "".join(f"{key}: {value}\n" for key, value in lines.items() if value)
    (about / "METADATA").write_text(text)
    module = next(iter(files)).removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    (about / "entry_points.txt").write_text(f"[trinity.plugins]\n{name} = {module}\n")
    (about / "RECORD").write_text("")
    return about
