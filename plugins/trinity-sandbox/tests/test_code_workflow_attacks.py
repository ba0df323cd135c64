"""A model that answers with an attack earns nothing, and nothing of it is left."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time

import pytest
from trinity.common.workflows import CodeWorkflow
from trinity.errors import EnvError
from trinity_sandbox import disk
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

from .conftest import command_lines

RIGHT = "def double(x):\n    return 2 * x\n"
HIDES = """
import os, sys
if not os.fork():
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)  # MARK"])
"""
PRINTS = """
import glob
print(globals(), *(open(name).read() for name in glob.glob("*.py")))
raise SystemExit
"""
GUESSES = """
import os
def double(x):
    for guess in range(5):
        if not os.fork():
            return guess
    for _ in range(5):
        os.wait()
    os._exit(0)
"""
NESTS = """
import os
start = os.getcwd()
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
os.chdir(start)
"""
FILLS = """
import os, time
for number in range(200):
    file = os.open(str(number), os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(file, 0, 1 << 20)
    os.close(file)
time.sleep(0.5)
"""
BY_ITSELF = """from __future__ import annotations
import pickle, sys
class Pair:
    left: Missing
def double(x):
    assert __name__ == "__main__" and sys.argv == ["program.py"]
    assert open(__file__).readline().startswith("from __future__")
    assert sys._getframe().f_code.co_filename == __file__  # of tracebacks
    assert isinstance(pickle.loads(pickle.dumps(Pair())), Pair)
    return 2 * x
"""

RECURSES = "def depth(n):\n    return n if n == 0 else 1 + depth(n - 1)\n"
DOUBLES = "n = int(input())\nprint(2 * n)\n"


def reward_of(program: str, test: str | dict[str, str] = "assert double(2) == 4") -> float:
    """Return the reward of a reply that holds this program."""
    row = {"question": "Write it.", "test_cases": [test]}
    task = a_task(raw_task=row, format_args={"prompt_key": "question"})
    engine = ScriptedEngine(f"```python\n{program}```")
    [experience] = CodeWorkflow(task=task, model=model_over(engine)).run()
    return experience.reward


def test_a_program_that_is_right_earns_its_reward_and_runs_as_by_itself() -> None:
    assert reward_of(RIGHT) == 1.0
    assert reward_of(BY_ITSELF) == 1.0
    assert reward_of(f"{BY_ITSELF}{DOUBLES}double(n)\n", {"stdin": "3", "stdout": "6"}) == 1.0


def test_a_program_may_recurse_as_deep_as_by_itself(tmp_path) -> None:
    file = tmp_path / "program.py"

    def runs_by_itself(depth: int) -> bool:
        file.write_text(f"{RECURSES}depth({depth})\n")
        command = [sys.executable, "-ISB", file]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    depth = max(filter(runs_by_itself, range(996, 1001)))

    printed = {"stdin": "", "stdout": str(depth)}
    assert reward_of(f"{RECURSES}print(depth({depth}))\n", printed) == 1.0
    assert reward_of(RECURSES, f"assert depth({depth}) == {depth}") == 1.0


@pytest.mark.parametrize(
    ("end", "reward"), [("", 1.0), ("exit()", 1.0), ("quit(0)", 1.0), ("exit(1)", 0.0)]
)
def test_a_program_that_has_printed_its_answer_may_end_with_exit(end, reward) -> None:
    assert reward_of(f"{DOUBLES}{end}\n", {"stdin": "3", "stdout": "6"}) == reward


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit",
        "exit()",
        "import os; os._exit(0)",
        "import sys; sys.stdout = None; sys.exit(0)",
    ],
)
def test_a_program_that_ends_before_its_test_earns_nothing(end) -> None:
    assert reward_of(end) == 0.0
    assert reward_of(RIGHT + end) == 0.0


@pytest.mark.parametrize(
    "attack",
    [
        PRINTS,
        "if False: \\",
        GUESSES,
    ],
    ids=["prints what it sees", "takes the assert into a branch", "guesses"],
)
def test_a_program_that_reads_or_avoids_its_test_earns_nothing(attack) -> None:
    assert reward_of(attack) == 0.0


def test_an_assert_that_is_indented_is_no_part_of_the_program() -> None:
    assert reward_of(RIGHT, "    assert double(2) == 5") == 0.0
    assert reward_of(RIGHT, "    assert double(2) == 4") == 1.0


def test_a_program_that_reads_a_file_of_the_user_earns_nothing(tmp_path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a key")

    assert reward_of(f"open({str(secret)!r}).read()\n{RIGHT}") == 0.0


def test_a_program_that_opens_a_connection_earns_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        assert reward_of(f"import socket\nsocket.create_connection({address})\n{RIGHT}") == 0.0


@pytest.mark.parametrize(
    "attack",
    [
        "import os\nfor _ in range(1000):\n    os.fork()",
        "open('big', 'wb').write(bytes(10**8))",
        FILLS,
    ],
    ids=["forks", "writes a large file", "writes many files"],
)
def test_a_program_that_takes_too_much_earns_nothing(attack) -> None:
    assert reward_of(f"{attack}\n{RIGHT}") == 0.0


def test_a_right_program_earns_no_0_where_others_fill_the_disk_meanwhile(monkeypatch) -> None:
    monkeypatch.setattr(disk, "is_nearly_full", lambda folder: True)

    with pytest.raises(EnvError, match=r"left on the disk of .*TMPDIR"):
        reward_of(f"import time\ntime.sleep(0.4)\n{RIGHT}")
    monkeypatch.setattr(disk, "is_nearly_full", lambda folder: len(os.listdir(folder)) > 100)
    assert reward_of(FILLS + RIGHT) == 0.0


def test_a_program_that_nests_folders_has_its_reward_and_leaves_nothing(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert reward_of(NESTS + RIGHT) == 1.0
    assert reward_of(NESTS) == 0.0

    assert os.listdir(tmp_path) == []


def test_a_process_that_a_program_hides_does_not_outlive_its_test() -> None:
    mark = secrets.token_hex(8)

    reward_of(HIDES.replace("MARK", mark) + RIGHT)

    limit = time.monotonic() + 5.0
    while left := [pid for pid, line in command_lines().items() if mark.encode() in line]:
        assert time.monotonic() < limit, left
        time.sleep(0.05)
