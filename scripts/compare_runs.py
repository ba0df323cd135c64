"""Run the same configurations with two versions of the sources, and say what came out equal.

    python scripts/compare_runs.py BEFORE AFTER [--case fixed --case replay] [--execution local]

``BEFORE`` and ``AFTER`` are checkouts of the repository, from whose ``packages/*/src`` and
``plugins/*/src`` everything is imported, by this Python or by another (``--python-before``,
``--python-after``). The cases are those of ``tests/e2e/recorded_runs``, or of another folder with a
``run.yaml``, a ``cases.yaml`` and what they name (``--inputs``). Each is run by one version and
then by the other, with ``--local`` and over Ray.

Compared are ``history.jsonl``, all metrics but times, and the tensors of the last model, bit for
bit. What must be equal depends on what a run promises (``guarantee`` in its ``run.json``): where
``fully_async``, or a driven style over Ray, promises the order alone, other numbers are told, and
are no fault. Leaves with 1 where something differs that is promised.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
INPUTS = ROOT / "tests" / "e2e" / "recorded_runs"
PARTS = ("history", "metrics", "weights")
CLOCKED = re.compile(r"(^|/)(time|idle)/|_s$")  # and tokens_per_s
LIMIT_S = 600.0  # of a run that takes some seconds
MODEL = (
    "from trinity_testing.tiny import make_tiny_model as make; "
    "make('model', vocab=259, hidden=16, layers=1)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """Sources, and the Python that runs them."""

    name: str
    checkout: Path
    python: str

    def call(self, *arguments: str, folder: Path) -> None:
        """Run Python in a folder.

        Raises:
            RuntimeError: it failed; the message holds what it said.
        """
        sources = [*self.checkout.glob("packages/*/src"), *self.checkout.glob("plugins/*/src")]
        env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, sorted(sources)))}
        ended = subprocess.run(
            [self.python, *arguments],
            cwd=folder,
            env=os.environ | env,  # noqa: TID251 -- a script is an edge
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"{self.name} failed:\n{ended.stdout}{ended.stderr}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a run left."""

    guarantee: str
    history: list[Any]
    metrics: list[Any]  # role, step, name and value, without times
    weights: list[Any]  # name and digest of each tensor of the last model


def main() -> None:
    """Compare the cases that the command line names."""
    given = _arguments()
    cases = yaml.safe_load((given.inputs / "cases.yaml").read_text(encoding="utf-8"))
    before = Version(name="before", checkout=given.before.resolve(), python=given.python_before)
    after = Version(name="after", checkout=given.after.resolve(), python=given.python_after)
    num_faults = 0
    for execution in ("local", "ray") if given.execution == "both" else (given.execution,):
        with tempfile.TemporaryDirectory() as scratch:
            folders = {one.name: Path(scratch, one.name) for one in (before, after)}
            for one in (before, after):
                shutil.copytree(given.inputs, folders[one.name])
                before.call("-c", MODEL, folder=folders[one.name])
            for case in given.case or cases:
                outcomes = [
                    outcome_of(
                        one, case, cases[case], execution=execution, folder=folders[one.name]
                    )
                    for one in (before, after)
                ]
                in_turns = execution == "local" and not any("fully" in s for s in cases[case])
                found = differences(*outcomes)
                promised = promised_by(outcomes[0], in_turns=in_turns)
                num_faults += len(found.keys() & promised)
                _tell(f"{case:16} {execution:6} {outcomes[0].guarantee}", found, promised)
    sys.exit(f"{num_faults} of what is promised differ" if num_faults else 0)


def outcome_of(
    version: Version, case: str, settings: list[str], *, execution: str, folder: Path
) -> Outcome:
    """Run a case, and return what it left.

    Raises:
        RuntimeError: the run failed.
    """
    words = [word for one in [f"name={case}", *settings] for word in ("--set", one)]
    files = ["--config", "run.yaml", "--plugin-dir", "plugins"]
    where = ["--local"] if execution == "local" else []
    version.call("-m", "trinity", "run", *where, *files, *words, folder=folder)
    (status,) = folder.glob(f"runs/*/{case}/run.json")
    return read_outcome(status.parent)


def read_outcome(directory: Path) -> Outcome:
    """Return what lies in the directory of a run."""
    rows = sorted(_lines(directory / "monitor" / "metrics.jsonl"), key=lambda row: row["role"])
    models = directory.glob("global_step_*[0-9]/actor/huggingface/model.safetensors")
    last = max(models, key=lambda path: int(path.parts[-4].rpartition("_")[2]), default=None)
    return Outcome(
        guarantee=json.loads((directory / "run.json").read_text(encoding="utf-8"))["guarantee"],
        history=[(line["step"], line["eids"]) for line in _lines(directory / "history.jsonl")],
        metrics=[  # of each role in order; which role comes first is a matter of time
            (row["role"], row["step"], name, value)
            for row in rows
            for name, value in sorted(row.items())
            if not CLOCKED.search(name)
        ],
        weights=digests(last) if last is not None else [],
    )


def digests(model: Path) -> list[tuple[str, str]]:
    """Return the name and the digest of each tensor in a file of safetensors."""
    content = model.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    found = []
    for name in sorted(header.keys() - {"__metadata__"}):
        begin, end = header[name]["data_offsets"]
        found.append((name, hashlib.sha256(content[start + begin : start + end]).hexdigest()))
    return found


def differences(before: Outcome, after: Outcome) -> dict[str, str]:
    """Return in which parts two outcomes differ, and by what first."""
    found = {}
    for part in PARTS:
        one, other = getattr(before, part), getattr(after, part)
        if one != other:
            place = next(
                (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            ends = [
                str(lines[place]) if place < len(lines) else "nothing" for lines in (one, other)
            ]
            found[part] = f"{part}: {ends[0]} before, {ends[1]} after"
    return found


def promised_by(outcome: Outcome, *, in_turns: bool) -> set[str]:
    """Return the parts that must be equal; what takes turns in one process has the same numbers."""
    if in_turns or outcome.guarantee == "same numbers":
        return set(PARTS)
    return {"history"} if outcome.guarantee == "same order" else set()


def _tell(name: str, found: dict[str, str], promised: set[str]) -> None:
    words = {True: "differ, against the promise", False: "differ, as they may"}
    cells = [f"{part} {words[part in promised] if part in found else 'equal'}" for part in PARTS]
    sys.stdout.write(f"{name:38} {', '.join(cells)}\n")
    sys.stdout.writelines(f"    {text}\n" for part, text in found.items() if part in promised)
    sys.stdout.flush()


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--python-before", default=sys.executable)
    parser.add_argument("--python-after", default=sys.executable)
    parser.add_argument("--inputs", type=Path, default=INPUTS, help="a folder of cases")
    parser.add_argument("--case", action="append", help="one of them; repeatable; else all")
    parser.add_argument("--execution", choices=("local", "ray", "both"), default="both")
    return parser.parse_args()


if __name__ == "__main__":
    main()
