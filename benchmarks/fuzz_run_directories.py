"""Damage run directories in seeded ways, run the same command again, and say what became of it.

``python benchmarks/fuzz_run_directories.py --cases 500 --seed 0`` makes small runs that stand in
their middle (killed, with a queue, a file, a replay buffer or a ledger between explorer and
trainer; or ended by a limit that is raised), damages a copy of one for each case, lets it go on to
its end and compares weights, history and metrics with those of an unharmed copy that goes on from
the same checkpoint. Of a service (variant ``served``) the runs that wait in ``serve.db`` are
committed, and what becomes due is compared. The exit code is 1 if a case ended in an internal
error, a hang or a message that names no file of the run, or is different and nothing was said.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from run_damage import DAMAGES, damage
from served_runs import commit_all, due_of, serve_runs
from small_runs import RUN, STORED, import_what_is_needed, is_alike, results, run, write_inputs

VARIANTS = ("queue", "file", "replay", "limited", "ledger", "served")
DIES_IN = 4  # optimizer step
BAD = ("unclear message", "internal error", "silent difference", "hang")
OUTCOMES = ("unharmed", "went back", "clear message", *BAD)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One damage and what came of it."""

    number: int
    variant: str
    files: list[str]
    damage: str
    outcome: str
    said: str


class References:
    """What unharmed copies of the prepared runs come to, by variant and checkpoint."""

    def __init__(self, place: Path, *, num_rows: int) -> None:
        self._place = place
        self._num_rows = num_rows
        self._found: dict[tuple[str, int | None], dict[str, Any]] = {}

    def prepare(self, variant: str) -> Path:
        """Return a run of the variant that stands in its middle; it is made once."""
        folder = self._place / variant
        if not folder.exists() and variant == "served":
            serve_runs(folder)
        elif not folder.exists():
            write_inputs(folder, variant, num_rows=self._num_rows)
            _stop_in_the_middle(folder, variant)
        return folder

    def of(self, variant: str, *, step: int | None = None) -> dict[str, Any]:
        """Return what a copy comes to; with a step: one without the checkpoints after it."""
        if (variant, step) not in self._found:
            end = self._place / f"{variant}-from-{step}"
            shutil.copytree(self.prepare(variant), end)
            for path in (end / RUN).glob("global_step_*"):
                if step is not None and _step(path) > step:
                    shutil.rmtree(path)
            code, said = commit_all(end) if variant == "served" else run(end)
            if code:
                sys.exit(said)
            self._found[variant, step] = due_of(end) if variant == "served" else results(end)
        return self._found[variant, step]


def main() -> int:
    """Print the table; return 1 if a case is bad."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--rows", type=int, default=8, help="of the task set: each is a step")
    options.add_argument("--only", help="cases by number, 3,17; shows what was said")
    options.add_argument("--variants", default=",".join(VARIANTS), help="in turns")
    options.add_argument("--json", type=Path, help="a file for the cases")
    chosen = options.parse_args()
    import_what_is_needed()
    numbers = map(int, chosen.only.split(",")) if chosen.only else range(chosen.cases)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        references = References(Path(folder), num_rows=chosen.rows)
        variants = chosen.variants.split(",")
        cases = [
            _case(n, variants[n % len(variants)], Path(folder), references, seed=chosen.seed)
            for n in numbers
        ]
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(case) for case in cases]))
    _print_table(cases, is_long=bool(chosen.only))
    return 1 if any(case.outcome in BAD for case in cases) else 0


def _stop_in_the_middle(folder: Path, variant: str) -> None:
    if variant != "limited":
        code, said = run(folder, dies_in=DIES_IN)
        if code != -signal.SIGKILL:
            sys.exit(said)
        return
    file = folder / "run.yaml"
    whole = file.read_text()
    config = yaml.safe_load(whole)
    config["trainer"]["total_steps"] = DIES_IN - 1
    file.write_text(yaml.safe_dump(config))
    code, said = run(folder)
    if code:
        sys.exit(said)
    file.write_text(whole)


def _case(number: int, variant: str, place: Path, references: References, *, seed: int) -> Case:
    dice = random.Random(f"{seed}/{number}")
    folder = place / f"case-{number}"
    shutil.copytree(references.prepare(variant), folder, symlinks=True)
    files, name = damage(folder, dice)
    code, said = commit_all(folder) if variant == "served" else run(folder)
    outcome = _outcome(folder, code, said, references, variant=variant, files=files)
    for path in folder.rglob("*"):
        path.chmod(0o700)
    shutil.rmtree(folder)
    print(f"{number} {variant} {' and '.join(files)} {name}: {outcome}", file=sys.stderr)
    return Case(
        number=number, variant=variant, files=files, damage=name, outcome=outcome, said=said
    )


def _outcome(
    folder: Path,
    code: int | None,
    said: str,
    references: References,
    *,
    variant: str,
    files: list[str],
) -> str:
    if code is None:
        return "hang"
    if code == 1 and "Internal error" not in said and re.search("^Error: ", said, re.MULTILINE):
        return "clear message" if names_a_file(said) else "unclear message"
    if code:
        return "internal error"
    if variant == "served":
        is_told = "clear message" if "serve.db" in said else "silent difference"
        return "unharmed" if due_of(folder) == references.of(variant) else is_told
    return _compared(folder, said, references, variant=variant, files=files)


def _compared(
    folder: Path, said: str, references: References, *, variant: str, files: list[str]
) -> str:
    end = results(folder)
    back = re.search(r"the run goes back to global_step_(\d+)", said)
    if is_alike(end, references.of(variant)):
        return "went back" if back else "unharmed"
    if back:
        is_as_from_there = is_alike(end, references.of(variant, step=int(back[1])))
        return "went back" if is_as_from_there else "silent difference"
    named = [line for line in said.splitlines() if any(file in line for file in files)]
    return "clear message" if named else "silent difference"


def names_a_file(said: str) -> bool:
    """Return whether an error names the run directory, a file in it or the storage's file."""
    lines = [line for line in said.splitlines() if line.startswith("Error: ")]
    return any(str(RUN) in line or STORED in line for line in lines)


def _step(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def _print_table(cases: list[Case], *, is_long: bool) -> None:
    print(f"| damage | {' | '.join(OUTCOMES)} |")
    print("|---|" + "---|" * len(OUTCOMES))
    counts = Counter((case.damage, case.outcome) for case in cases)
    for name in DAMAGES:
        print(f"| {name} | {' | '.join(str(counts[name, o]) for o in OUTCOMES)} |")
    totals = Counter(case.outcome for case in cases)
    print(f"| all {len(cases)} | {' | '.join(str(totals[o]) for o in OUTCOMES)} |")
    for case in cases:
        if is_long or case.outcome in BAD:
            files = " and ".join(case.files)
            print(f"case {case.number}: {case.variant}, {case.damage}, {files}: {case.outcome}")
            print("\n".join(f"    {line}" for line in case.said.splitlines()[-12:]))


if __name__ == "__main__":
    sys.exit(main())
