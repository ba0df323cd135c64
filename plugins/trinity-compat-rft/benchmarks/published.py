"""Count what of Trinity-RFT's published parts works here: names they import, files as they are.

    python plugins/trinity-compat-rft/benchmarks/published.py --wheel trinity_rft-0.6.0.whl

The wheel is read, never installed: ``pip download --no-deps trinity-rft==0.6.0``. Each class file
is copied into a scratch folder and loaded as ``--plugin-dir`` does, in a process of its own; what
it defines is built and used once: a loss and an advantage on a small batch, a reward on a response,
an operator on experiences, a selector on rows, a workflow on a task with a scripted model. A file
that defines a contract itself (``class AdvantageFn(ABC)``) is no part, and is not counted.

A workflow gets what a run would give it: a judge as an auxiliary model and behind an API, a
database of mails. The packages that files ask for are the user's to install: ``openai``,
``gymnasium``, ``agentscope``. ``verl`` is not needed. ``example_names.txt`` lists what the examples
and the documentation import.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

FOLDERS = (
    "trinity/common/workflows/",
    "trinity/common/rewards/",
    "trinity/algorithm/advantage_fn/",
    "trinity/algorithm/policy_loss_fn/",
    "trinity/algorithm/kl_fn/",
    "trinity/algorithm/entropy_loss_fn/",
    "trinity/algorithm/sample_strategy/",
    "trinity/buffer/operators/",
    "trinity/buffer/selector/",
)
BASES = ("Workflow", "RewardFn", "AdvantageFn", "GroupAdvantage", "PolicyLossFn", "Operator")
CONTRACTS = {  # classes that Trinity has under the same name; a file that defines one is no part
    *("AdvantageFn", "PolicyLossFn", "KLFn", "EntropyLossFn", "SampleStrategy", "BaseSelector"),
    *("Workflow", "RewardFn", "ExperienceOperator", "StepWiseRewardWorkflow"),
}
EXAMPLE_NAMES = Path(__file__).with_name("example_names.txt")
LIMIT_S = 120


def main() -> None:
    """Print both tables."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--wheel", type=Path, required=True)
    arguments.add_argument("--names-only", action="store_true")
    given = arguments.parse_args()
    sources = sources_of(given.wheel)
    print_names(sources)
    if not given.names_only:
        print_files(sources)


def say(line: str) -> None:
    """Print a line at once: the trials take minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def sources_of(wheel: Path) -> dict[str, str]:
    """Return the text of each module with pluggable parts, by its path in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name).decode()
            for name in sorted(archive.namelist())
            if name.startswith(FOLDERS) and name.endswith(".py") and "__init__" not in name
        }


def print_names(sources: dict[str, str]) -> None:
    """Print how many of the imported names are here, and those that are not."""
    of_parts = sorted({name for text in sources.values() for name in imported_names(text)})
    of_examples = EXAMPLE_NAMES.read_text(encoding="utf-8").split()
    for what, names in (("pluggable parts", of_parts), ("examples and documentation", of_examples)):
        absent = {name: why for name in names if (why := what_fails(name))}
        say(f"names that {what} import: {len(names) - len(absent)} of {len(names)} here")
        for name, why in absent.items():
            say(f"  absent  {name}  ({why})")


def imported_names(text: str) -> list[str]:
    """Return ``module.name`` of everything that a module takes from the package ``trinity``."""
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    own = [n for n in nodes if n.level == 0 and (n.module or "").startswith("trinity")]
    return [f"{node.module}.{alias.name}" for node in own for alias in node.names]


def what_fails(name: str) -> str:
    """Return why a name cannot be imported; an empty text: it can."""
    module, _, attribute = name.rpartition(".")
    try:
        getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        return str(error).partition(". ")[0]
    return ""


def has_class(text: str) -> bool:
    """Return whether a module defines a class of one of the pluggable kinds, and no contract."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    if {cls.name for cls in classes} & CONTRACTS:
        return False
    bases = [ast.unparse(base) for cls in classes for base in cls.bases]
    return any(base.endswith(BASES) or base == "SampleStrategy" for base in bases)


def print_files(sources: dict[str, str]) -> None:
    """Print which files run as they are, and why the others do not."""
    paths = [path for path, text in sources.items() if has_class(text)]
    results = {path: outcome_of(path, sources) for path in paths}
    fine = [path for path, why in results.items() if why == "ok"]
    say(f"class files that run as they are: {len(fine)} of {len(results)}")
    for path, why in results.items():
        say(f"  {'ok  ' if why == 'ok' else 'fail'}  {PurePosixPath(path).name}  {why}")


def neighbours_of(path: str, sources: dict[str, str]) -> list[str]:
    """Return the modules of its folder that a module imports by ``from .x import y``."""
    nodes = [n for n in ast.walk(ast.parse(sources[path])) if isinstance(n, ast.ImportFrom)]
    names = [PurePosixPath(path).with_name(f"{n.module}.py") for n in nodes if n.level == 1]
    return [str(name) for name in names if str(name) in sources]


def outcome_of(path: str, sources: dict[str, str]) -> str:
    """Return "ok", or what the file's trial in a process of its own ended with."""
    sys.path.insert(0, str(Path(__file__).parent))
    from published_trial import outcome

    fork = multiprocessing.get_context("fork")  # torch is imported once
    answer, answers = fork.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        for name in (path, *neighbours_of(path, sources)):
            (Path(folder) / PurePosixPath(name).name).write_text(sources[name])
        child = fork.Process(target=lambda: answers.send(outcome(folder, path)))
        child.start()
        said = answer.recv() if answer.poll(LIMIT_S) else f"no answer in {LIMIT_S} s"
        child.kill()
        child.join()
    return str(said)[:160]


if __name__ == "__main__":
    main()
