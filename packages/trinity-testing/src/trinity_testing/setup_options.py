"""The options of ``trinity plugins setup`` that a plugin's own functions make."""

from __future__ import annotations

import inspect
import keyword
import re
from typing import TYPE_CHECKING

from trinity.errors import PluginError
from trinity.extend.assets import parameters_of
from trinity.extend.component import imported_target
from trinity.extend.failure import described_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.extend import PluginRecord
    from trinity.extend.component import AssetSpec


def options_of(asset: AssetSpec, *, record: PluginRecord) -> dict[str, str]:
    """Return what ``trinity plugins setup`` takes for the asset: ``--option`` -> what it says.

    These are the named parameters of its functions, described by the ``Args`` of their docstrings.

    Raises:
        PluginError: a function cannot be imported; the message says whose it is.
    """
    options: dict[str, str] = {}
    for function in _functions(asset, record):
        for name in parameters_of(function):
            said = re.search(rf"^\s*{name}: (.*)$", inspect.getdoc(function) or "", re.MULTILINE)
            option = f"--{name.rstrip('_').replace('_', '-')}"
            options[option] = options.get(option) or (said[1] if said else "")
    return options


def parameter_of(option: str) -> str:
    """Return the name of an option in Python.

    >>> parameter_of("--from"), parameter_of("--num-products")
    ('from_', 'num_products')
    """
    name = option.removeprefix("--").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def _functions(asset: AssetSpec, record: PluginRecord) -> list[Callable[..., object]]:
    """Return what fetches and what checks, in the order in which they say what an option is."""
    try:
        found: list[object] = [imported_target(t) for t in (asset.fetch, asset.check) if t]
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"the asset {asset.name!r} of plugin {record.label} cannot be loaded: "
            f"{described_failure(error)}."
        ) from error
    return [function for function in found if callable(function)]
