"""``nox -s everything``: each session is run, and its row says how it ended."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "full_run.py"
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


def test_a_failed_session_ends_red_and_the_others_are_run_and_noted(tmp_path):
    for folder in ("scripts", "docs/reference"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "noxfile.py").write_text(NOXFILE)
    (tmp_path / ".gitignore").write_text("__pycache__\n.nox\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)

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
