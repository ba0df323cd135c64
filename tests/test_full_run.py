"""``nox -s everything``: each session is run, and its row says how it ended."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "full_run.py"
PAGE = "docs/reference/last-full-run.md"
MAX_COMMITS = 100
NOXFILE = """
import nox

@nox.session(venv_backend="none")
def fails(session):
    print("== 1 failed, 2 passed, 3 skipped, 1 warning in 0.10s ==")
    session.error("no")

@nox.session(venv_backend="none")
@nox.parametrize("client", ["new", "old"])
def goes(session, client):
    print("4 passed in 1.00s")
"""


def run(root: Path, *sessions: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / "scripts" / "full_run.py", *sessions]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def rows(root: Path) -> list[str]:
    page = (root / "docs" / "reference" / "last-full-run.md").read_text(encoding="utf-8")
    return [
        re.sub(r"20\d\d-\d\d-\d\d \| [0-9a-f]{9} ", "DATE | COMMIT ", line.rpartition("| ")[0])
        for line in re.findall(r"(?m)^\| `.*(?= \|$)", page)
    ]


def git(root: Path, *words: str) -> str:
    """Return what git says of a repository; empty where it, or its history, is missing."""
    if shutil.which("git") is None or not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False).stdout


def num_commits_since(root: Path) -> int | None:
    """Return how many commits the page is old; None: the history does not tell.

    The first commit of a shallow clone seems to have written all files, so that the page may be
    older than it looks there, never younger.
    """
    written = git(root, "log", "-1", "--format=%H", "--", PAGE).strip()
    count = int(git(root, "rev-list", "--count", f"{written}..HEAD").strip()) if written else None
    is_shallow = git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
    return None if is_shallow and count is not None and count <= MAX_COMMITS else count


def test_the_last_full_run_is_at_most_100_commits_old() -> None:
    count = num_commits_since(ROOT)
    if count is None:
        pytest.skip("no history of the repository is here, or too little of it: a shallow clone")

    assert count <= MAX_COMMITS, f"{PAGE} is {count} commits old; run: nox -s everything"


def test_the_age_of_the_page_is_counted_where_the_history_tells_it(tmp_path) -> None:
    page = tmp_path / "full" / PAGE
    page.parent.mkdir(parents=True)
    page.write_text("rows")

    assert num_commits_since(tmp_path / "full") is None
    subprocess.run(["git", "init", "-q", tmp_path / "full"], check=True)
    git(tmp_path / "full", "add", ".")
    for number in range(3):
        git(tmp_path / "full", "commit", "-q", "--allow-empty", "-m", str(number))
    assert num_commits_since(tmp_path / "full") == 2
    source = (tmp_path / "full").as_uri()
    subprocess.run(["git", "clone", "-q", "--depth=1", source, tmp_path / "shallow"], check=True)
    assert num_commits_since(tmp_path / "shallow") is None


def test_a_failed_session_ends_red_and_the_others_are_run_and_noted(tmp_path):
    for folder in ("scripts", "docs/reference"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "noxfile.py").write_text(NOXFILE)
    (tmp_path / ".gitignore").write_text("__pycache__\n.nox\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")

    ended = run(tmp_path, "goes", "fails")

    assert ended.returncode == 1
    assert ended.stdout.index("everything: goes(") < ended.stdout.index("everything: fails")
    assert ended.stderr == "failed: fails. What they printed lies in .nox/everything.\n"
    noted = [
        "| `fails` | DATE | COMMIT | **failed** | 2 | 1 | 3 ",
        "| `goes(client='new')` | DATE | COMMIT | ok | 4 | 0 | 0 ",
        "| `goes(client='old')` | DATE | COMMIT | ok | 4 | 0 | 0 ",
    ]
    assert rows(tmp_path) == noted
    assert "4 passed" in (tmp_path / ".nox" / "everything" / "goes-client-new.log").read_text()
    (tmp_path / "noxfile.py").write_text(NOXFILE + "\n# changed\n")
    assert run(tmp_path, "goes(client='old')").returncode == 0
    assert rows(tmp_path)[:2] == noted[:2], "rows of sessions that did not run stay"
    assert "and changes" in rows(tmp_path)[2]
