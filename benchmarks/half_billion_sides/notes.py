"""Note what a method took, in the process of either side; it imports neither of them."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any


def note_times(cls: type, method: str, *, name: str, file: str) -> None:
    """Let each call of a method add a line to a file: the wall and CPU seconds that it took."""
    inner = getattr(cls, method)

    @functools.wraps(inner)
    def timed(*args: Any, **kwargs: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        value = inner(*args, **kwargs)
        took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        with Path(file).open("a") as out:
            out.write(json.dumps({"name": name, **took}) + "\n")
        return value

    setattr(cls, method, timed)
