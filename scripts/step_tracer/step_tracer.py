"""Note which functions of a package run while a window is open, in every thread and process.

Each module of the package is compiled with one call more at the beginning of each function. That
call walks up the stack, so a loop that began before the window counts too, as soon as it calls a
function of the package. No profiler is used: those see neither threads that Ray makes nor, before
Python 3.12, threads that are already there.

``STEP_TRACE_FOLDER`` holds a file of one byte, the window, which all processes share, and gets the
notes: one JSON line per function and process, and one per stack on which ``backward`` was called.
"""

from __future__ import annotations

import ast
import builtins
import json
import mmap
import os
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, FrameType, ModuleType

FOLDER = "STEP_TRACE_FOLDER"
PACKAGE = "STEP_TRACE_PACKAGE"  # "trinity" if it is not set
STEPS = "STEP_TRACE_STEPS"  # how many train steps the window is open
BY_TIME = {"trinity-memory", "trinity-watch"}  # look on every few seconds, whatever the steps do
CALL = "__step_tracer__"  # ends in underscores: a class would mangle the name otherwise


def install() -> None:
    """Trace the package that the environment names in this process; without one, do nothing."""
    folder = os.environ.get(FOLDER)  # noqa: TID251 -- Ray's workers inherit it
    if folder:
        setattr(builtins, CALL, Tracer(Path(folder)))
        package = os.environ.get(PACKAGE, "trinity")  # noqa: TID251
        sys.meta_path.insert(0, _Finder(package))


def installed() -> Tracer:
    """Return the tracer of this process."""
    return getattr(builtins, CALL)


def make_window(folder: Path) -> None:
    """Write the closed window, before a traced process starts."""
    (folder / "window").write_bytes(b"\0")


def notes(folder: Path) -> list[dict[str, Any]]:
    """Return what the processes noted."""
    path = folder / "notes.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


class Tracer:
    """Called at the beginning of each function of the package."""

    def __init__(self, folder: Path) -> None:
        with (folder / "window").open("r+b") as file:
            self._window = mmap.mmap(file.fileno(), 1)
        # With O_APPEND lines of several threads and processes never mix.
        self._notes = os.open(folder / "notes.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._seen: dict[int, CodeType] = {}  # the values keep the ids from being used again
        self._stacks: set[tuple[str, ...]] = set()

    def set_window(self, *, is_open: bool) -> None:
        """Open or close the window of all processes."""
        self._window[0] = int(is_open)

    def __call__(self) -> None:
        """Note the functions on the caller's stack."""
        if not self._window[0]:
            return
        for frame in _frames(sys._getframe(1)):
            code = frame.f_code
            if id(code) not in self._seen and threading.current_thread().name not in BY_TIME:
                self._seen[id(code)] = code
                if _is_traced(frame):
                    self._note(function=_name(code), file=code.co_filename)

    def backward(self) -> None:
        """Note the package's functions on the stack, the outermost first."""
        if not self._window[0]:
            return
        frames = [frame for frame in _frames(sys._getframe(1)) if _is_traced(frame)]
        stack = tuple(f"{frame.f_code.co_filename} {_name(frame.f_code)}" for frame in frames[::-1])
        if stack not in self._stacks:
            self._stacks.add(stack)
            self._note(stack=stack)

    def _note(self, **values: object) -> None:
        os.write(self._notes, (json.dumps({"process": os.getpid(), **values}) + "\n").encode())


class _Finder:
    """Finds the package's modules where Python does, and has them compiled with the calls."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != self._package:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compile the source; what Python keeps compiled lacks the calls, and is left alone."""
        path = self.get_filename(fullname)
        return compile(with_calls(self.get_data(path)), path, "exec", dont_inherit=True)


def with_calls(source: bytes) -> ast.Module:
    """Return the module, each function of which calls the tracer first."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            call = ast.Expr(ast.Call(ast.Name(CALL, ast.Load()), [], []))
            for part in ast.walk(call):
                ast.copy_location(part, node.body[0])
            has_docstring = ast.get_docstring(node, clean=False) is not None
            node.body.insert(int(has_docstring), call)
    return tree


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_traced(frame: FrameType) -> bool:
    """Return whether a frame is a function's: a lambda, comprehension or module has no call."""
    return CALL in frame.f_code.co_names


def _name(code: CodeType) -> str:
    """Return the name with its line: a property's two functions share the name."""
    return f"{code.co_qualname}:{code.co_firstlineno}"
