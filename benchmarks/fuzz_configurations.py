"""Damage configurations at random: each ends in a clear message, or means what it says.

``python benchmarks/fuzz_configurations.py --count 500 --seed 0 --runs 10`` prints a table: what was
done to the files, and how `trinity config check` took it. A configuration that is taken is shown,
resolved a second time, and compared with the undamaged one: a change that nobody can see is a
``silent`` one. ``--runs`` of those that are taken are run for a step.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import signal
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from fuzz_bases import bases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 60  # of one case
OUTCOMES = ("message", "ok", "silent", "internal", "hang")
ODD_TEXTS = [
    "\u202eabc",
    "\U0001f600",
    "a\u0000b",
    "\ufeff",
    "x" * 5000,
    "",
    " ",
    "é" * 40,
    "../..",
]
ODD_NUMBERS: list[Any] = [10**30, -1, -(2**63), 1e308, float("nan"), float("inf"), 0, 1e-320, True]
REFERENCES = [
    "${", "${}", "${oc.env:NO_SUCH_VARIABLE}", "${no.such.key}", "${.x}", "${oc.nope:1}",
    "${model}", "${oc.env:A,${oc.env:B}}", "${model.model_path", "$${x}", "${oc.env:}",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One damaged file: what was done, where, and what stood there."""

    kind: str
    text: bytes
    base: str
    path: tuple[Any, ...] = ()
    value: Any = None


@dataclass(kw_only=True)
class Result:
    """How one case was taken."""

    outcome: str
    detail: str = ""

    @property
    def is_fine(self) -> bool:
        """Return whether the user was told, or got what is written."""
        return self.outcome in {"message", "ok"}


@dataclass(kw_only=True)
class Fuzz:
    """The undamaged configurations, what they come to, and the tools to damage them."""

    bases: dict[str, dict[str, Any]]
    folder: Path
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)

    def cases(self, count: int, *, seed: int) -> Iterator[Case]:
        """Yield damaged files; the same for the same seed."""
        rng = random.Random(seed)
        names = sorted(self.bases)
        for number in range(count):
            base = names[number % len(names)]
            kind = rng.choice(sorted(OF_VALUES) + sorted(OF_TEXTS))
            if kind in OF_TEXTS:
                text = yaml.safe_dump(self.bases[base], sort_keys=False, allow_unicode=True)
                yield Case(kind=kind, text=OF_TEXTS[kind](text, rng), base=base)
                continue
            settings = copy.deepcopy(self.bases[base])
            path = rng.choice(sorted(paths_of(settings), key=str))
            value = OF_VALUES[kind](settings, path, rng)
            dumped = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
            yield Case(kind=kind, text=dumped.encode(), base=base, path=path, value=value)

    def taken(self, case: Case) -> Result:
        """Return how the check takes the case."""
        file = self.folder / "case.yaml"
        file.write_bytes(case.text)
        try:
            with limited(LIMIT_S):
                code, output = checked(file)
                if code == 0:
                    return self._compared(case, file)
        except TimeoutError:
            return Result(outcome="hang", detail=f"over {LIMIT_S} s")
        except Exception as error:  # noqa: BLE001 -- what the fuzz is there to find
            return Result(outcome="internal", detail=f"{type(error).__name__}: {error}")
        if "Internal error" in output or "Traceback" in output:
            return Result(outcome="internal", detail=output)
        if not re.search(r"\d+ problem|cannot be read", output):
            return Result(outcome="internal", detail=f"no path in: {output[:300]}")
        return Result(outcome="message", detail=output)

    def _compared(self, case: Case, file: Path) -> Result:
        from trinity.common.config import load_config, probe, resolve

        if case.base not in self.shown:
            whole = self.folder / "whole.yaml"
            whole.write_text(yaml.safe_dump(self.bases[case.base], sort_keys=False))
            self.shown[case.base] = shown(whole)
        now, machine = shown(file), probe()
        once = resolve(load_config(file), machine)
        if resolve(once, machine).flat() != once.flat():
            return Result(outcome="silent", detail="it resolves to something else a second time")
        if case.path and now == self.shown[case.base] and not self._means_the_same(case):
            return Result(outcome="silent", detail=f"{case.path} = {case.value!r} changed nothing")
        return Result(outcome="ok")

    def _means_the_same(self, case: Case) -> bool:
        """Return whether the value is another way to write what stood there."""
        before: Any = self.bases[case.base]
        for step in case.path:
            before = before[step]
        if case.value is None or case.value == before or before in (None, {}, []):
            return True  # null: the default, which is what stood there
        if case.kind == "delete":
            return True
        written = str(case.value).strip().lower()
        if isinstance(before, int | float):
            written = written.replace("_", "")  # 0._9 and 1_000 are numbers, too
        return written == str(before).lower()


def checked(file: Path) -> tuple[int, str]:
    """Return the exit code and the output of ``trinity config check``, in this process."""
    from trinity.cli.config import app
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["check", str(file)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def shown(file: Path) -> dict[str, Any]:
    """Return values and notes of ``trinity config show``, without their lines in the file."""
    from trinity.cli.config import app
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["show", str(file), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    stages = json.loads(result.output)["stages"]
    return {
        stage["name"]: [{k: str(v["value"]) for k, v in stage["values"].items()}, stage["notes"]]
        for stage in stages
    }


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value below a section."""
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    found = [path] if path else []
    for key, item in items:
        found += paths_of(item, (*path, key))
    return found


def put(settings: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Set a value in place; return it."""
    for step in path[:-1]:
        settings = settings[step]
    settings[path[-1]] = value
    return value


def get(settings: Any, path: tuple[Any, ...]) -> Any:
    """Return what stands at a path."""
    for step in path:
        settings = settings[step]
    return settings


def unknown_key(settings: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    """Add a key that nobody reads, in the section of the path."""
    section = get(settings, path[:-1])
    if isinstance(section, list):
        section.append("no_such_entry")
    else:
        section[rng.choice(["no_such_key", "lr_", "Mode", "a b", "1"])] = 1
    return "an unknown key"


def misspelt(settings: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    """Swap or add a letter of a text; of anything else: make it a text."""
    text = str(get(settings, path))
    place = rng.randrange(len(text) + 1)
    return put(settings, path, text[:place] + rng.choice("xq_-") + text[place:])


def delete(settings: Any, path: tuple[Any, ...], _: random.Random) -> Any:
    """Leave a key out."""
    del get(settings, path[:-1])[path[-1]]


def deep(settings: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    """Put a value below many sections."""
    value: Any = 1
    for _ in range(rng.choice([3, 40])):
        value = {"a": value}
    return put(settings, path, value)


def one_of(choices: list[Any]) -> Callable[[Any, tuple[Any, ...], random.Random], Any]:
    """Return the damage that puts one of the values at the path."""
    return lambda settings, path, rng: put(settings, path, copy.deepcopy(rng.choice(choices)))


OF_VALUES: dict[str, Callable[[Any, tuple[Any, ...], random.Random], Any]] = {
    "wrong type": one_of(["a text", ["a", "list"], {"a": "section"}, 1.5, [[]], [{}]]),
    "odd number": one_of(ODD_NUMBERS),
    "odd text": one_of(ODD_TEXTS),
    "empty": one_of([None, {}, []]),
    "reference": one_of(REFERENCES),
    "unknown key": unknown_key,
    "wrong name": misspelt,
    "delete": delete,
    "deep": deep,
}


def with_line(text: str, rng: random.Random, change: Callable[[str], str]) -> bytes:
    """Return the text with one of its lines changed."""
    lines = text.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    lines[place] = change(lines[place])
    return "".join(lines).encode()


def with_anchor(text: str, rng: random.Random) -> bytes:
    """Add an anchor: used, unknown, or one that holds itself."""
    ending = rng.choice(
        ["log: &a {level: INFO}\nservice: *a\n", "log: *nobody\n", "log: &a\n  level: *a\n"]
    )
    return (text + ending).encode()


def with_bytes(text: str, rng: random.Random) -> bytes:
    """Put bytes that are no text somewhere."""
    data = text.encode()
    place = rng.randrange(len(data))
    return data[:place] + bytes(rng.randrange(256) for _ in range(8)) + data[place:]


OF_TEXTS: dict[str, Callable[[str, random.Random], bytes]] = {
    "duplicate line": lambda text, rng: with_line(text, rng, lambda line: line * 2),
    "tab": lambda text, rng: with_line(text, rng, lambda line: "\t" + line),
    "indent": lambda text, rng: with_line(text, rng, lambda line: "   " + line),
    "bracket": lambda text, rng: with_line(text, rng, lambda line: line.rstrip("\n") + " [{\n"),
    "tag": lambda text, rng: with_line(
        text, rng, lambda line: line.rstrip("\n") + " !!python/object:os.system x\n"
    ),
    "cut": lambda text, rng: text[: rng.randrange(len(text))].encode(),
    "documents": lambda text, rng: (text + "---\n" + text[: rng.randrange(60)]).encode(),
    "anchor": with_anchor,
    "binary": with_bytes,
    "utf-16": lambda text, _: text.encode("utf-16"),
}


def ran(case: Case, folder: Path) -> str:
    """Return how a run of one step ended: fine, a clear error, or what it raised."""
    import trinity
    from trinity.errors import TrinityError

    file = folder / "run.yaml"
    file.write_bytes(case.text)
    try:
        with limited(LIMIT_S * 3):
            return f"run: {trinity.run(file, local=True).status.value}"
    except TrinityError as error:
        return f"run: clear error ({type(error).__name__})"
    except Exception as error:  # noqa: BLE001 -- what the fuzz is there to find
        return f"run: INTERNAL {type(error).__name__}: {error}"


def table(results: list[tuple[Case, Result]]) -> str:
    """Return the outcomes by kind of damage."""
    counts = Counter((case.kind, result.outcome) for case, result in results)
    lines = [f"{'damage':<16}" + "".join(f"{name:>10}" for name in OUTCOMES)]
    for kind in [*OF_VALUES, *OF_TEXTS]:
        row = "".join(f"{counts[kind, name]:>10}" for name in OUTCOMES)
        lines.append(f"{kind:<16}{row}")
    total = Counter(result.outcome for _, result in results)
    lines.append(f"{'all':<16}" + "".join(f"{total[name]:>10}" for name in OUTCOMES))
    return "\n".join(lines)


def main() -> None:
    """Print the table, and each case that went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), None
        if given.runs:
            from trinity_testing.tiny import make_tiny_model

            model = make_tiny_model(folder / "tiny")
        fuzz = Fuzz(bases=bases(folder, model=model), folder=folder)
        results = [(case, fuzz.taken(case)) for case in fuzz.cases(given.count, seed=given.seed)]
        print(table(results))
        wrong = [(c, r) for c, r in results if not r.is_fine]
        for case, result in wrong:
            print(f"{case.base}, {case.kind}, {case.path} = {case.value!r}: {result.outcome}")
            print(f"    {result.detail[:600]}")
        taken = [case for case, result in results if result.outcome == "ok"]
        of_small = [case for case in taken if case.base == "small"][: given.runs]
        ends = Counter(ran(case, folder) for case in of_small)
        for end, count in sorted(ends.items()):
            print(f"{count:4} {end}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
