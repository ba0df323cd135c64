"""Which module is found under which published import path."""

from __future__ import annotations

__all__ = ["PUBLISHED_MODULES"]

_HERE = "trinity_compat_rft.paths"

#: published path -> the module that is found there, one of ours or one of the core's
PUBLISHED_MODULES = {
    "trinity.algorithm.utils": f"{_HERE}.algorithm_utils",
    "trinity.common.constants": f"{_HERE}.constants",
    "trinity.utils.annotations": f"{_HERE}.annotations",
    "trinity.utils.log": f"{_HERE}.log",
    "trinity.utils.metrics": f"{_HERE}.metrics",
    "trinity.utils.registry": "trinity.extend.registry",
    "trinity.utils.timer": f"{_HERE}.timer",
}
