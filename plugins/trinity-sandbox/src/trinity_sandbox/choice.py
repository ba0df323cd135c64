"""Which sandbox a run uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.extend import get_manager

if TYPE_CHECKING:
    from trinity_sandbox.base import Sandbox

__all__ = ["sandbox_named"]

_BY_ITSELF = ("bwrap", "landlock")  # the best first


def sandbox_named(name: str = "auto") -> Sandbox:
    """Return a sandbox; ``auto``: the first of bwrap and landlock that works on this machine.

    Raises:
        ConfigError: the machine cannot run it, or for ``auto`` any; the message has the remedy.
        PluginError: no sandbox has the name.
    """
    problems = {}
    for one in _BY_ITSELF if name == "auto" else (name,):
        cls: type[Sandbox] = get_manager().load("sandbox", one)
        problems[one] = cls.problem()
        if not problems[one]:
            return cls()
    listed = "; ".join(f"{one}: {problem}" for one, problem in problems.items())
    raise ConfigError(
        f"sandbox {name}: this machine cannot isolate programs that a model wrote ({listed}). "
        f"Install bubblewrap 0.8 or newer (Debian: apt-get install bubblewrap), or use Linux 6.12 "
        f"or newer. sandbox: limits runs them without isolation: they can read your files and use "
        f"the network."
    )
