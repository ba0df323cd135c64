"""Run golden cases: ``python tests/golden/run.py [--data FOLDER] [--verbose]``.

Any folder with any of the known files will do; without one, the copied files are run. Prints what
passed, what failed and what no code of ours is mapped to, per file. Leaves with 1 if a case failed,
if nothing was compared, or if a case outside ``ALLOWED_UNMAPPED`` is not mapped.
"""

# ruff: noqa: T201 -- a command
from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from golden_cases import Case, differences, expected_outputs, read_cases, unpacked  # noqa: E402
from golden_mapping.dispatch import implementation  # noqa: E402

DATA = HERE / "data"
FILES = ("policy_loss", "advantage", "kl_entropy", "sample_strategy", "algorithm_types")

#: start of a case's id -> why no code of ours is run on it
ALLOWED_UNMAPPED = {
    "sample_strategy/sample/mix/ratio1.0_bs4": "its reader gives rows though none are asked for",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    case: Case
    status: str  # passed, failed, not mapped
    problems: tuple[str, ...] = ()


def main(arguments: list[str] | None = None) -> int:
    """Run the cases of a folder; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the cases")
    parser.add_argument("--only", default="", help="words that a case's id holds")
    parser.add_argument("--verbose", action="store_true", help="all problems of a case")
    options = parser.parse_args(arguments)
    outcomes = {
        name: [outcome_of(case) for case in read_cases(path) if options.only in case["id"]]
        for name in FILES
        if (path := options.data / f"{name}.json").exists()
    }
    report(outcomes, verbose=options.verbose)
    return exit_code([one for found in outcomes.values() for one in found])


def outcome_of(case: Case) -> Outcome:
    """Return what our code makes of a case."""
    run = None if _reason(case) else implementation(case)
    if run is None:
        return Outcome(case, "not mapped")
    must_raise = expected_outputs(case) is None and "raises" in case["outputs"]
    try:
        results = run(unpacked(case["inputs"]))
    except Exception as error:  # noqa: BLE001 -- a case may fail in any way, the others go on
        is_refusal = must_raise and isinstance(error, ValueError)
        problems = () if is_refusal else (f"raised {type(error).__name__}: {error}",)
    else:
        problems = ("nothing was raised",) if must_raise else tuple(_problems(case, results))
    return Outcome(case, "failed" if problems else "passed", problems)


def _problems(case: Case, results: Case) -> list[str]:
    """Compare outputs; a case that depends on a random draw is judged by its own invariants."""
    if "invariants" in results:
        return list(results["invariants"])
    return [] if case.get("verdict") == "constructor" else differences(case, results)


def exit_code(outcomes: list[Outcome]) -> int:
    """Return 1 unless something was compared and all that must be is right."""
    counts = Counter(outcome.status for outcome in outcomes)
    surprising = [one for one in outcomes if one.status == "not mapped" and not _reason(one.case)]
    return 0 if counts["passed"] and not counts["failed"] and not surprising else 1


def report(outcomes: dict[str, list[Outcome]], *, verbose: bool) -> None:
    """Print the failed cases, then the table."""
    for found in outcomes.values():
        for outcome in found:
            if outcome.status == "failed":
                print(f"FAILED {outcome.case['id']} {outcome.case['args']}")
                for problem in outcome.problems[: None if verbose else 3]:
                    print(f"    {problem.lstrip('.')}")
            elif outcome.status == "not mapped":
                print(f"NOT MAPPED {outcome.case['id']}: {_reason(outcome.case) or 'no reason'}")
    print(f"{'FILE':<18}{'PASSED':>8}{'FAILED':>8}{'NOT MAPPED':>12}")
    everything = [one for found in outcomes.values() for one in found]
    for name, found in [*outcomes.items(), ("all", everything)]:
        counts = Counter(outcome.status for outcome in found)
        print(f"{name:<18}{counts['passed']:>8}{counts['failed']:>8}{counts['not mapped']:>12}")


def _reason(case: Case) -> str:
    matching = (
        reason for start, reason in ALLOWED_UNMAPPED.items() if case["id"].startswith(start)
    )
    return next(matching, "")


if __name__ == "__main__":
    sys.exit(main())
