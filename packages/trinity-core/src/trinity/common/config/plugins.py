"""``plugins``: which plugins take part in the run."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from trinity.common.config.base import StrictModel, core

__all__ = ["PluginsConfig"]


class PluginsConfig(StrictModel):
    """``plugins``: which plugins take part in the run. Nothing is ever installed by it."""

    autoload: bool = core(True, "use every installed plugin")
    allow: list[str] = core([], "plugins to use where autoload is off")
    disabled: list[str] = core([], "plugins to leave out")
    require: list[str] = core([], "distributions that must be there, as pip writes them")
    prefer: dict[str, str] = core({}, "for a name that two plugins give: the distribution meant")
