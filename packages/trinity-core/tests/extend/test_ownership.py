"""Another distribution that installs the package ``trinity`` is told, whichever came last."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trinity
from trinity.extend.ownership import other_owner, overwritten

OURS = Path(trinity.__file__).parent
THEIRS = {  # what a distribution of that name installs, in small
    "trinity/__init__.py": "__version__ = '0.6.0'\n",
    "trinity/common/__init__.py": "",
    "trinity/common/experience.py": "class Experience: ...\n",
    "trinity/common/config.py": "def load_config(path): ...\n",
    "trinity/cli/launcher.py": "from trinity.common.config import load_config\n",
    "trinity/utils/log.py": "def get_logger(name): ...\n",
}


@pytest.fixture
def target(tmp_path):
    """Give a function that installs ours and theirs into one folder, in an order."""
    site = tmp_path / "site"
    installers = {"ours": _install_ours, "theirs": _install_theirs}

    def install(*order):
        for name in order:
            installers[name](site)
        return site

    return install


def _install_ours(site):
    shutil.copytree(OURS, site / "trinity", ignore=_no_caches, dirs_exist_ok=True)
    files = [path.relative_to(site) for path in (site / "trinity").rglob("*.py")]
    _metadata(site, "trinity_core-0.1.0", files)


def _install_theirs(site):
    for path, text in THEIRS.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    _metadata(site, "trinity_rft-0.6.0", THEIRS)


def _metadata(site, stem, files):
    folder = site / f"{stem}.dist-info"
    folder.mkdir()
    name, version = stem.replace("_", "-").rsplit("-", 1)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("".join(f"{path},,\n" for path in files))


def _no_caches(folder, names):
    return [name for name in names if name == "__pycache__"]


def _python(site, code):
    """Run code where the folder is the only installation of ``trinity``."""
    alone = f"import sys; sys.path[:] = [p for p in sys.path if p != {str(OURS.parent)!r}]"
    return subprocess.run(
        [sys.executable, "-P", "-c", f"{alone}\n{code}"],
        env={"PYTHONPATH": str(site), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


BOTH = [("ours", "theirs"), ("theirs", "ours")]
PROGRAM = "from trinity.cli.program import program; program()"


@pytest.mark.parametrize("order", BOTH)
def test_the_program_says_in_one_line_what_to_do(target, order, golden):
    site = target(*order)

    done = _python(site, PROGRAM)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    golden(done.stderr, "package_of_two", SITE=site)


@pytest.mark.parametrize("order", BOTH)
@pytest.mark.parametrize(
    "code",
    [
        "from trinity.common.config import load_config",
        "from trinity.extend import get_manager; get_manager()",
        "import trinity.cli.launcher",
    ],
)
def test_an_import_ends_in_the_same_line(target, order, code):
    done = _python(target(*order), code)

    assert done.returncode == 1
    assert "PluginError: trinity-rft 0.6.0 also installs the import package" in done.stderr


def test_files_that_the_other_took_along_are_told(target, golden):
    site = target("ours", "theirs")
    for path in THEIRS:  # as pip uninstalls it
        (site / path).unlink()
    shutil.rmtree(site / "trinity_rft-0.6.0.dist-info")

    done = _python(site, PROGRAM)

    golden(done.stderr, "package_with_holes", SITE=site)


def test_ours_alone_is_in_order(target):
    site = target("ours")

    assert other_owner(str(site)) is None
    assert _python(site, "import trinity.common.config; print('fine')").stdout == "fine\n"


def test_a_plugin_whose_name_begins_alike_is_no_owner(tmp_path):
    _metadata(
        tmp_path, "trinity_envs_x-1.0", ["trinity_envs_x/__init__.py", "my/trinity/__init__.py"]
    )

    assert other_owner(str(tmp_path)) is None
    assert other_owner(str(tmp_path / "nowhere")) is None


def test_the_look_takes_little_time(target):
    site = target("ours", "theirs")
    for number in range(300):
        (site / f"other_{number}-1.0.dist-info").mkdir()
    other_owner.cache_clear()
    began = time.process_time()

    assert other_owner(str(site)) == "trinity-rft 0.6.0"
    assert time.process_time() - began < 0.05  # about 1 ms on a quiet machine


def test_this_installation_is_in_order():
    assert overwritten() is None
