"""Name the parts that Trinity-RFT's configurations name, and serve its import paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.extend import hookimpl

from trinity_compat_rft.parts import REWARD_FNS, WORKFLOWS
from trinity_compat_rft.paths.table import FOREIGN_MODULES, PUBLISHED_MODULES, PUBLISHED_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.extend import ComponentSpec

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_published_modules() -> Mapping[str, str]:
    """Return the modules that are found under Trinity-RFT's import paths."""
    return PUBLISHED_MODULES | PUBLISHED_NAMES | FOREIGN_MODULES


@hookimpl
def trinity_workflows() -> Mapping[str, ComponentSpec]:
    """Return the published workflows that the core does not have."""
    return WORKFLOWS


@hookimpl
def trinity_reward_fns() -> Mapping[str, ComponentSpec]:
    """Return the published rewards that the core does not have."""
    return REWARD_FNS
