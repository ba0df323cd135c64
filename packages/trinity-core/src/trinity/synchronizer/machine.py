"""Which machine a process is on: there, processes share memory."""

from __future__ import annotations

import os
from pathlib import Path


def machine_id() -> str:
    """Return the same text to all processes that can map each other's memory; empty: none can.

    They run under one kernel since its start, and know each other's processes by the same numbers:
    two containers of one machine do not.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return f"{boot} {processes}" if hasattr(os, "memfd_create") else ""
