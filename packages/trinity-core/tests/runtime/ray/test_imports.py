"""A worker's module imports what the worker needs, and nothing for the others."""

from __future__ import annotations

import json
import subprocess
import sys

MODULES = (
    "worker_spec",
    "worker",
    "weight_sync",
    "engine_supervisor",
    "remote_trainer",
    "trainer_worker",
    "engine_worker",
    "build",
)
HEAVY = ("torch", "transformers", "datasets", "pandas", "matplotlib", "tensorboard", "math_verify")

SCRIPT = f"""
import importlib, json, sys
found = {{}}
for name in {MODULES}:
    importlib.import_module("trinity.runtime.ray." + name)
    found[name] = [module for module in {HEAVY} if module in sys.modules]
print(json.dumps(found))
"""


def test_no_room_imports_torch_or_transformers_before_it_is_built():
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(ended.stdout) == {name: [] for name in MODULES}
