"""What importing a plugin module may do; it is tried in a process of its own."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, TypedDict

from trinity_testing.check import Check, CheckContext, Finding, Skipped

if TYPE_CHECKING:
    from trinity.extend.manager import PluginRecord

BUDGET_S = 0.05  # of processor time, over what the core has imported already
HEAVY = (
    "datasets",
    "jax",
    "numpy",
    "pandas",
    "ray",
    "streamlit",
    "tensorflow",
    "torch",
    "transformers",
)
NUM_TRIES = 3  # a busy machine, or bytecode that is not compiled yet, must not look slow
LIMIT_S = 120.0


class Observation(TypedDict):
    """What one import did."""

    seconds: float
    heavy: list[str]
    effects: list[str]
    error: str


def is_within_budget(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a plugin module whose import takes too long."""
    tries = []
    for number in range(NUM_TRIES):
        tries.append(_observe(record, number=number)["seconds"])
        if tries[-1] <= BUDGET_S:
            return None
    return Finding(f"importing {record.module} takes {min(tries) * 1000:.0f} ms, more than 50 ms")


def imports_nothing_heavy(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a plugin module that loads torch or its like."""
    heavy = _observe(record)["heavy"]
    if heavy:
        return Finding(f"importing {record.module} imports {', '.join(heavy)}")
    return None


def has_no_side_effect(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a plugin module that does something when it is imported."""
    effects = _observe(record)["effects"]
    if effects:
        return Finding(f"importing {record.module} {', '.join(effects)}")
    return None


def _observe(record: PluginRecord, *, number: int = 0) -> Observation:
    if record.state == "disabled":
        raise Skipped("the plugin is disabled")
    if not record.module or not record.distribution:
        raise Skipped("it is no installed module")
    seen = _import_separately(record.module, tuple(sys.path), number)
    if seen["error"]:
        raise Skipped(f"static.entry_point fails: {seen['error']}")
    return seen


@functools.cache
def _import_separately(module: str, path: tuple[str, ...], number: int) -> Observation:
    del number  # a further try is a further key of the cache
    order = json.dumps({"module": module, "path": path, "heavy": HEAVY})
    try:
        done = subprocess.run(
            [sys.executable, "-c", _OBSERVER],
            input=order,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Observation(
            seconds=LIMIT_S, heavy=[], effects=[], error=f"not imported in {LIMIT_S:.0f} s"
        )
    if done.returncode != 0 or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Observation(seconds=0.0, heavy=[], effects=["ends the process: " + last], error="")
    seen: Observation = json.loads(done.stdout.splitlines()[-1])
    return seen


_OBSERVER = r"""
import importlib, io, json, logging, os, random, signal, sys, threading, time
order = json.loads(sys.stdin.read())
sys.path[:] = order["path"]
import trinity.extend.hookspecs
effects, watching = [], False

def watch(event, args):
    if not watching:
        return
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        effects.append("opens a network connection")
    elif event in ("subprocess.Popen", "os.system", "os.fork", "os.posix_spawn"):
        effects.append("starts a process")
    elif event == "os.chdir":
        effects.append("changes the working directory")
    elif event in ("os.putenv", "os.unsetenv"):
        effects.append(f"sets the environment variable {os.fsdecode(args[0])}")
    elif event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        if ".pyc" not in str(args[0]):
            effects.append(f"writes the file {args[0]}")

def settings():
    root = logging.getLogger()
    return {
        "a signal handler": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
        "the root logger": (root.level, list(root.handlers)),
        "sys.path": list(sys.path),
        "the random numbers of others": random.getstate(),
    }

sys.addaudithook(watch)
before_settings = settings()
before, threads = set(sys.modules), threading.active_count()
answer, sys.stdout = sys.stdout, io.StringIO()
error, watching, began = "", True, time.process_time()
try:
    importlib.import_module(order["module"])
except Exception as raised:
    error = f"{type(raised).__name__}: {raised}"
seconds, watching = time.process_time() - began, False
after = settings()
effects += [f"changes {name}" for name in after if after[name] != before_settings[name]]
if sys.stdout.getvalue():
    effects.append("prints")
if threading.active_count() > threads:
    effects.append("starts a thread")
ray = sys.modules.get("ray")
if ray is not None and getattr(ray, "is_initialized", bool)():
    effects.append("starts Ray")
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = sorted(roots & set(order["heavy"]))
seen = {"seconds": seconds, "heavy": heavy, "effects": list(dict.fromkeys(effects)), "error": error}
print("\n" + json.dumps(seen), file=answer, flush=True)
os._exit(0)
"""

checks = (
    Check(
        id="import.budget",
        function=is_within_budget,
        remedy="Give references ('module:Class') in the hooks and import nothing of yours there.",
    ),
    Check(
        id="import.no_heavy",
        function=imports_nothing_heavy,
        remedy="Import it in the module of the component, or inside a function.",
    ),
    Check(
        id="import.no_side_effects",
        function=has_no_side_effect,
        remedy="Do it when the component is made or used, and undo it in its close().",
    ),
)
