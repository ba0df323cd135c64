"""``scripts/step_size.py``: what it counts of sources, and what its tracer counts of a run."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"


@pytest.fixture
def step_size(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("step_size")


SOURCES = {
    "packages/trinity-core/src/trinity/one.py": """\
class Reply:
    class Part: ...

def made():
    class Reply: ...
""",
    "packages/trinity-core/src/trinity/room/two.py": """\
# A comment, an empty line, and no end of the last line.

class Part: ...
class Own: ...""",
    "packages/trinity-core/src/trinity/notes.txt": "class Reply: ...\n",
    "packages/trinity-core/tests/test_one.py": "\n\n\n",
    "packages/trinity-testing/tests/test_two.py": "\n",
    "plugins/trinity-algo-opmd/tests/test_three.py": "\n",
    "tests/e2e/test_four.py": "class Reply: ...\n",
    "examples/five.py": "\n",
}


def test_sources_and_tests_are_counted_by_folder(tmp_path):
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, SCRIPTS / "step_size.py", "--no-step", f"--source={tmp_path}"]

    said = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert json.loads(said)[str(tmp_path)]["counts"] == {
        "source files": 2,
        "source lines": 5 + 4,
        "source classes": 5,  # Reply, Part, Reply; Part, Own
        "class names used twice": 2,
        "core test files": 1,
        "core test lines": 3,
        "all test files": 4,
        "all test lines": 3 + 1 + 1 + 1,
    }
    assert shown.splitlines()[:3] == [f"|  | {tmp_path} |", "| --- | --- |", "| source files | 2 |"]


LOOP = '''\
"""A loop, and a thread that is there before the window opens."""
import threading

from small import parts
from step_tracer import installed

def run():
    """Run three steps; the second is traced."""
    too_early()
    go, done = threading.Event(), threading.Event()
    threading.Thread(target=beside, args=(go, done)).start()
    for step in (1, 2, 3):
        installed().set_window(is_open=step == 2)
        if step == 2:
            go.set()
            done.wait(60)
            step_of(parts.Child())
    installed().set_window(is_open=False)
    too_early()
    installed().backward()

def too_early(): ...

def beside(go, done):
    go.wait()
    in_thread()
    done.set()

def in_thread(): ...

def step_of(part):
    part.size = part.size + 1
    [never_noted for never_noted in range(3)]
    (lambda: installed().backward())()
    subprocess()

def subprocess():
    import subprocess as of_python, sys

    of_python.run([sys.executable, "-c", "from small.child import main; main()"], check=True)
'''
PARTS = '''\
from dataclasses import dataclass

@dataclass
class Record:
    size: int = 1

class Base:
    @property
    def size(self):
        """Return what the record has."""
        return self.record.size

    @size.setter
    def size(self, value):
        def check():
            assert value
        check()

class Child(Base):
    record = Record()
'''


@pytest.fixture
def small(tmp_path) -> Path:
    """Return the folder that holds a package of three modules."""
    folder = tmp_path / "src" / "small"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "loop.py").write_text(LOOP)
    (folder / "parts.py").write_text(PARTS)
    (folder / "child.py").write_text("def main(): ...\n")
    return folder.parent


def test_the_tracer_sees_threads_processes_and_loops_while_the_window_is_open(
    step_size, small, tmp_path
):
    step_size.make_window(tmp_path)
    env = {"STEP_TRACE_FOLDER": str(tmp_path), "STEP_TRACE_PACKAGE": "small"}
    env["PYTHONPATH"] = os.pathsep.join([str(SCRIPTS / "step_tracer"), str(small)])
    program = "from small.loop import run; run()"

    subprocess.run([sys.executable, "-c", program], env=os.environ | env, check=True, timeout=100)
    step = step_size.summed_up(step_size.notes(tmp_path), root=small)

    assert step.functions == [
        "small/child.py main:1",
        "small/loop.py beside:24",  # began before, and calls one
        "small/loop.py in_thread:29",
        "small/loop.py run:7",
        "small/loop.py step_of:31",
        "small/loop.py subprocess:37",
        "small/parts.py Base.size.<locals>.check:15",
        "small/parts.py Base.size:13",
        "small/parts.py Base.size:8",
    ]
    assert step.classes == ["small/parts.py Base"]  # neither Record nor Child has a method
    assert step.stack == ["small/loop.py run:7", "small/loop.py step_of:31"]
    assert step.counts() == {
        "step: files": 3,
        "step: lines of these files": 1 + 40 + 20,
        "step: functions": 9,
        "step: classes": 1,
        "step: frames to backward()": 2,
        "step: processes": 2,
    }


@pytest.mark.acceptance
def test_two_traced_steps_of_this_core_agree(step_size):
    step = step_size.traced_step(ROOT)

    assert step == step_size.traced_step(ROOT)
    assert step.num_processes == 1
    assert "trinity/cli/run.py" in step.files
    assert "trinity/engines/transformers_engine.py" in step.files  # whose thread was there before
    assert step.stack[0].startswith("trinity/cli/program.py program")
    assert step.stack[-1].startswith("trinity/trainer/torch_trainer.py TorchTrainer.")
