"""What is asked often answers soon: a check imports no torch, a run speaks before it imports."""

from __future__ import annotations

import resource
import subprocess
import sys

from trinity.extend import KINDS, get_manager
from trinity.extend.requirements import CORE

CHECK = """
import sys
from trinity.cli.main import main
sys.argv = ["trinity", "config", "check", {path!r}]
try:
    main()
except SystemExit as end:
    print("code", end.code)
print("imported", *sorted({{"torch", "numpy", "transformers", "datasets"}} & set(sys.modules)))
"""
FIRST_WORDS = """
import sys, typer
from trinity.cli.main import main
def echo(text, **options):
    late = {"torch", "omegaconf", "trinity.common.config"}
    print(text, "| imported", *sorted(late & set(sys.modules)))
typer.echo = echo
sys.argv = ["trinity", "run", "--config", "nowhere.yaml"]
main()
"""
BUDGET_S = 2.0  # of CPU time; 0.9 to 1.4 measured, 12 with torch
TRIES = 3  # a processor that others use too is slower


def python(script: str) -> tuple[str, float]:
    """Return what a new interpreter prints, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return done.stdout + done.stderr, user + system


def test_a_check_of_built_in_parts_imports_nothing_heavy_and_takes_two_seconds(a_run) -> None:
    path = a_run("trainer: {save_interval: 3}")

    results = []
    while not results or (len(results) < TRIES and min(results)[0] > BUDGET_S):
        text, seconds = python(CHECK.format(path=str(path)))
        results.append((seconds, text))

    assert min(results)[1].splitlines()[-2:] == ["code 0", "imported"]
    assert min(results)[0] < BUDGET_S


def test_rows_of_a_table_are_looked_at_without_datasets_and_torch(
    a_run, some_tasks, tmp_path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("question,answer\n1+1=,2\n")
    path = a_run()
    path.write_text(path.read_text().replace(str(some_tasks), str(rows)))

    text, _ = python(CHECK.format(path=str(path)))

    assert text.splitlines()[-2] == "code 0", text
    assert not {"torch", "datasets"} & set(text.splitlines()[-1].split())


def test_a_run_says_what_it_reads_before_it_imports_what_takes_time() -> None:
    text, _ = python(FIRST_WORDS)

    assert text.splitlines()[0] == "reading nowhere.yaml | imported"


def test_the_parts_of_the_core_are_what_their_kinds_must_be() -> None:
    """The check of a configuration takes it on trust, as it does not import them."""
    own = [c for c in get_manager().components() if c.origin.distribution == CORE]
    wrong = {f"{c.kind}/{c.name}": KINDS[c.kind].problem_of(c.load()) for c in own}

    assert {name: what for name, what in wrong.items() if what} == {}
