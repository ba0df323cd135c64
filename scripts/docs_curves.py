"""Run the small examples and keep their curves, which the gallery of the docs shows.

    python scripts/docs_curves.py [NAME ...] [--keep FOLDER]

Needs what each example's README installs. Without names: those that take minutes. Each is run as
its README says, in a folder of its own, and the plot of its last stage replaces the one beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Example:
    """How an example is run, and which picture of it is kept."""

    prepare: str  # below examples/
    config: str  # below examples/
    plot: str = "reward.png"
    more: tuple[str, ...] = ()  # arguments of the run


SMALL = {
    "quickstart": Example("quickstart/prepare.py", "quickstart/quickstart.yaml"),
    "opmd_math": Example("quickstart/prepare.py", "opmd_math/opmd_math.yaml"),
    "custom_plugin": Example(
        "quickstart/prepare.py",
        "custom_plugin/custom_plugin.yaml",
        more=("--plugin-dir", str(EXAMPLES / "custom_plugin/parts")),
    ),
    "agents": Example("agents/prepare.py", "agents/tiny.yaml"),
    "grpo_webshop": Example(
        "grpo_webshop/prepare.py", "grpo_webshop/webshop_tiny.yaml", "success.png"
    ),
}
LONG = {
    "grpo_alfworld": Example(
        "grpo_alfworld/prepare.py", "grpo_alfworld/alfworld_tiny.yaml", "success.png"
    ),
    "grpo_alfworld_general_multi_step": Example(
        "grpo_alfworld/prepare.py",
        "grpo_alfworld_general_multi_step/alfworld_tiny.yaml",
        "success.png",
    ),
}


def main() -> int:
    """Run what is asked for, one after the other."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    asked.add_argument("names", nargs="*", help=f"of {', '.join(SMALL | LONG)}")
    asked.add_argument("--keep", type=Path, help="where the folders of the runs are left")
    given = asked.parse_args()
    unknown = sorted(set(given.names) - set(SMALL | LONG))
    if unknown:
        asked.error(f"no example is called {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="trinity_curves_") as name:
        folder = (given.keep or Path(name)).resolve()
        for example in given.names or SMALL:
            picture = run((SMALL | LONG)[example], folder / example)
            shutil.copy(picture, EXAMPLES / example / picture.name)
            sys.stdout.write(f"{example}: {picture.stat().st_size / 1000:.0f} kB\n")
    return 0


def run(example: Example, folder: Path) -> Path:
    """Run an example in the folder; return the picture of the stage that ended last.

    Raises:
        CalledProcessError: a command failed; what it printed is above.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **own}  # noqa: TID251 -- handed to another process
    train = ("-m", "trinity", "run", "--local", "--config", str(EXAMPLES / example.config))
    for words in ((str(EXAMPLES / example.prepare),), (*train, *example.more)):
        subprocess.run([sys.executable, *words], cwd=folder, env=environment, check=True)
    plots = folder.glob(f"checkpoints/**/plots/{example.plot}")
    return max(plots, key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    sys.exit(main())
