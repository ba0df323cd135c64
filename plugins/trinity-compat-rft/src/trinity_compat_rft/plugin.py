"""Name the parts that Trinity-RFT's configurations name."""

from __future__ import annotations

TRINITY_PLUGIN_API = 1
