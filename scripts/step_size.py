r"""Say how much code there is, and how much of it one training step runs through.

    python scripts/step_size.py [--source CHECKOUT ...] [--ray] [--json]
    python scripts/step_size.py --ray --set synchronizer.sync_style=fully_async --steps 10 \
        --set advisors.length=off

Counted of the files that end in ``.py``:

* sources: those of ``packages/trinity-core/src``. Lines are all lines, comments and blank ones too.
  Classes are class statements, nested ones too. A name is used twice where two or more have it.
* core tests: those of ``packages/trinity-core/tests``; all tests: those of each folder ``tests``.

Traced is the second of three GRPO steps, ``--local``, with the quickstart's model and questions and
a reward that starts no process; style ``fixed``, interval 1, no evaluation and no checkpoint.
The window opens at the end of the first train step and closes at the end of the second, when the
plugins' hook ``trinity_step_finished`` is called. So it holds each thing that a step does once: the
sync, the rollouts, the train step, what is written. All threads and all processes count.

* functions: those that are called in the window, and those that began before it and call one of
  these. Lambdas and comprehensions are not counted, nor are methods that ``dataclass`` writes.
* files: those in which these functions are; lines: all lines of these files.
* classes: those in whose statement these functions are, as methods.
* frames: functions of the core on the deepest stack on which ``Tensor.backward`` is called, from
  the command (over Ray: from the actor's method) down.

Two runs agree. Over Ray a timer of a watchdog may add a file or two. Where rollouts overlap with
training, one step need not hold both: ``--steps 10`` keeps the window open for ten train steps. In
these, the advisor ``length`` would speak once, which is no part of a step.

Each ``--source`` is a column: a checkout whose sources are measured in place of this one's, with
this one's configuration. The packages they need must be installed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from step_tracer.step_tracer import FOLDER, STEPS, make_window, notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
TRACER = Path(__file__).resolve().parent / "step_tracer"
CORE = Path("packages/trinity-core")
SOURCES = ("packages/*/src", "plugins/*/src")
TESTS = ("tests", "packages/*/tests", "plugins/*/tests")
LIMIT_S = 600.0  # of the traced run


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What one step runs through."""

    files: dict[str, int]  # lines by path
    functions: list[str]  # path, name, line
    classes: list[str]
    stack: list[str]  # from the command down to backward()
    num_processes: int

    def counts(self) -> dict[str, int]:
        """Return the rows of the table."""
        return {
            "step: files": len(self.files),
            "step: lines of these files": sum(self.files.values()),
            "step: functions": len(self.functions),
            "step: classes": len(self.classes),
            "step: frames to backward()": len(self.stack),
            "step: processes": self.num_processes,
        }


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", action="append", type=Path, help="a checkout; repeatable")
    parser.add_argument("--ray", action="store_true", help="trace a step over Ray")
    parser.add_argument("--steps", type=int, default=1, help="train steps that are traced")
    parser.add_argument("--set", action="append", default=[], help="a value of the traced run")
    parser.add_argument("--no-step", action="store_true", help="trace nothing, count only")
    parser.add_argument("--json", action="store_true", help="print names too, as JSON")
    options = parser.parse_args()
    measured = {}
    for source in options.source or [ROOT]:
        counts = source_counts(source)
        found: dict[str, Any] = {"counts": counts}
        if not options.no_step:
            step = traced_step(
                source.resolve(),
                num_steps=options.steps,
                over_ray=options.ray,
                settings=options.set,
            )
            found = {"counts": counts | step.counts(), "files": step.files}
            found |= {"functions": step.functions, "classes": step.classes, "stack": step.stack}
        measured[str(source)] = found
    if options.json:
        text = json.dumps(measured, indent=1)
    else:
        text = table({source: found["counts"] for source, found in measured.items()})
    sys.stdout.write(f"{text}\n")


def source_counts(checkout: Path) -> dict[str, int]:
    """Return the rows of the table that need no run."""
    sources = python_files([checkout / CORE / "src"])
    core_tests = python_files([checkout / CORE / "tests"])
    tests = python_files(folder for pattern in TESTS for folder in checkout.glob(pattern))
    names = Counter(name for path in sources for name in class_names(path))
    return {
        "source files": len(sources),
        "source lines": sum(map(num_lines, sources)),
        "source classes": names.total(),
        "class names used twice": sum(count > 1 for count in names.values()),
        "core test files": len(core_tests),
        "core test lines": sum(map(num_lines, core_tests)),
        "all test files": len(tests),
        "all test lines": sum(map(num_lines, tests)),
    }


def python_files(folders: Iterable[Path]) -> list[Path]:
    """Return the Python files below the folders."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def num_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def class_names(path: Path) -> list[str]:
    """Return the name of each class statement of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def traced_step(
    checkout: Path, *, num_steps: int = 1, over_ray: bool = False, settings: Sequence[str] = ()
) -> Step:
    """Return what the steps after the first run through, in a run of two steps more."""
    with tempfile.TemporaryDirectory(prefix="step_size_") as name:
        folder = Path(name)
        make_window(folder)
        (folder / "run.yaml").write_text(
            yaml.safe_dump(run_config(num_steps + 2)), encoding="utf-8"
        )
        paths = [path for pattern in SOURCES for path in sorted(checkout.glob(pattern))]
        prepare = [ROOT / "examples" / "quickstart" / "prepare.py"]
        run = ["-m", "trinity", "run", "--config=run.yaml", f"--plugin-dir={TRACER / 'plugins'}"]
        run += [] if over_ray else ["--local"]
        run += [f"--set={setting}" for setting in settings]
        called(prepare, folder=folder, paths=paths)
        # Ray looks in its folder for a cluster that somebody started: that one is not traced.
        env = {FOLDER: str(folder), STEPS: str(num_steps), "RAY_TMPDIR": str(folder)}
        called(run, folder=folder, paths=[TRACER, *paths], env=env)
        noted = notes(folder)
    if not noted:
        sys.exit(f"the run of {checkout} ended before its step {num_steps + 1}")
    return summed_up(noted, root=checkout / CORE / "src")


def run_config(num_steps: int) -> dict[str, Any]:
    """Return the second stage of the quickstart, cut down to so many small steps."""
    path = ROOT / "examples" / "quickstart" / "quickstart.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    del config["stages"], config["buffer"]["explorer_input"]["eval_tasksets"]
    config["checkpoint_root_dir"] = "checkpoints"
    config["buffer"] |= {"batch_size": 4, "total_steps": num_steps}
    config["buffer"]["explorer_input"]["taskset"]["default_reward_fn_type"] = "first_digit"
    config["explorer"] = {"eval_on_startup": False, "eval_interval": 0}
    config["synchronizer"] = {"sync_style": "fixed", "sync_interval": 1}
    config["monitor"] = {"monitor_type": "jsonl"}
    config["trainer"] = {"save_interval": 0}
    return config


def called(
    words: Sequence[object],
    *,
    folder: Path,
    paths: Sequence[Path],
    env: Mapping[str, str] | None = None,
) -> None:
    """Run Python in a folder, with these paths first, offline and with one thread."""
    fixed = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    fixed |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), **(env or {})}
    environment = os.environ | fixed  # noqa: TID251 -- the user's own: paths, temporary folders
    ended = subprocess.run(
        [sys.executable, *map(str, words)],
        env={name: value for name, value in environment.items() if name != "RAY_ADDRESS"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if ended.returncode != 0:
        sys.exit(f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}\nthe traced run failed")


def summed_up(noted: Sequence[Mapping[str, Any]], *, root: Path) -> Step:
    """Return what all processes noted, as one."""
    called = {(note["file"], note["function"]) for note in noted if "function" in note}
    named = sorted((str(Path(file).relative_to(root)), function) for file, function in called)
    classes = {f"{file} {owner}" for file, name in named if (owner := class_of(name))}
    stacks = [note["stack"] for note in noted if "stack" in note]
    return Step(
        files={file: num_lines(root / file) for file in sorted({file for file, _ in named})},
        functions=[f"{file} {name}" for file, name in named],
        classes=sorted(classes),
        stack=[line.removeprefix(f"{root}/") for line in max(stacks, key=len, default=[])],
        num_processes=len({note["process"] for note in noted}),
    )


def class_of(name: str) -> str:
    """Return the class that a method is written in; empty: it is a plain or nested function.

    >>> class_of("Loop.run:12"), class_of("main:3"), class_of("Loop.run.<locals>.retry:14")
    ('Loop', '', '')
    """
    owner = name.rpartition(".")[0]
    return "" if owner.endswith("<locals>") else owner


def table(columns: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts, one column for each checkout."""
    labels = next(iter(columns.values()))
    rows = [["", *columns], ["---"] * (1 + len(columns))]
    rows += [[label, *(f"{counts[label]:,}" for counts in columns.values())] for label in labels]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
