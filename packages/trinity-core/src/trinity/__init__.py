"""Trinity trains LLM agents with reinforcement learning.

       extend:    hook specs, registries, plugin manager   how to plug in
       common:    the nouns                                what travels
       algorithm: the maths                                what is computed
                             |
  row       run              |  write       sample      advantage, loss     sync
 ----> Task -----> Experience -----> buffer -----> batch -----> loss ----> weights ----> engines
 buffer/    explorer/           buffer/     algorithm/   algorithm/    trainer/  synchronizer/

``trinity.run(config, local=True)`` runs a configuration in this process; ``trinity run`` is its
twin on the command line. A plugin marks its hooks with ``trinity.hookimpl``.
"""

from __future__ import annotations

from trinity.starting import Loading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trinity.runtime.run import run

with Loading():
    from trinity.extend.hookspecs import hookimpl

__version__ = "0.1.0"
__all__ = ["__version__", "hookimpl", "run"]


def __getattr__(name: str) -> Any:  # Any: a module attribute
    if name == "run":
        from trinity.runtime.run import run

        return run
    raise AttributeError(f"module 'trinity' has no attribute {name!r}")
