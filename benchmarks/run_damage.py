"""Damage one file of a run directory, in a way that a seed chooses."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from small_runs import RUN, STORED

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path


_OFTEN = 0.5  # how often the ledger is chosen where a run has one


def damage(folder: Path, dice: random.Random) -> tuple[list[str], str]:
    """Damage a file of the run, or two; return their names and what was done to them."""
    files = sorted(p for p in (folder / RUN).rglob("*") if p.is_file())
    files += [path for path in [folder / STORED] if path.exists()]
    # first a kind of file, then one of it: the many files of a tokenizer are one kind
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault("model" if "huggingface" in path.parts else path.name, []).append(path)
    for name in ("ledger.db-wal", "ledger.db-shm"):
        kinds.get("ledger.db", []).extend(kinds.pop(name, []))
    kind = dice.choice(sorted(kinds))
    if "ledger.db" in kinds and dice.random() < _OFTEN:
        kind = "ledger.db"
    path = dice.choice(kinds[kind])
    fitting = [name for name, (ends, _) in DAMAGES.items() if path.name.endswith(ends)]
    name = dice.choice(fitting)
    other = DAMAGES[name][1](path, dice, files)
    return [str(p.relative_to(folder)) for p in (path, other) if p is not None], name


def _flip(path: Path, dice: random.Random, _: list[Path]) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def _truncate(path: Path, dice: random.Random, _: list[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: dice.randrange(max(1, len(content)))])


def _empty(path: Path, *_: Any) -> None:
    path.write_bytes(b"")


def _garbage(path: Path, dice: random.Random, _: list[Path]) -> None:
    path.write_bytes(dice.randbytes(dice.randrange(1, 400)))


def _delete(path: Path, *_: Any) -> None:
    path.unlink()


def _folder(path: Path, *_: Any) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("a file")


def _forbid(path: Path, *_: Any) -> None:
    path.chmod(0)


def _twice(path: Path, dice: random.Random, _: list[Path]) -> None:
    lines = path.read_bytes().splitlines(keepends=True) or [b"{}\n"]
    line = dice.randrange(len(lines))
    path.write_bytes(b"".join([*lines[: line + 1], *lines[line:]]))


def _swap(path: Path, dice: random.Random, files: list[Path]) -> Path:
    other = dice.choice([file for file in files if file != path])
    content, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(content)
    return other


def _retype(path: Path, dice: random.Random, _: list[Path]) -> None:
    """Put a value of another kind in the place of one value of a JSON file, or of one line."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    if not lines:
        return _garbage(path, dice, _)
    line = dice.randrange(len(lines))
    values = {"all": json.loads(lines[line])}
    owner, key = dice.choice(list(_places(values)))
    owner[key] = dice.choice([[], {}, None, "text", -1, math.nan, 7, 1e300, [1, "a"]])
    lines[line] = json.dumps(values["all"])
    path.write_text("\n".join(lines) + "\n")
    return None


def _places(value: Any) -> Any:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


JSON = (".json", ".jsonl")
DAMAGES: dict[str, tuple[tuple[str, ...], Callable[..., Path | None]]] = {
    "flip a bit": (("",), _flip),
    "truncate": (("",), _truncate),
    "empty": (("",), _empty),
    "garbage": (("",), _garbage),
    "delete": (("",), _delete),
    "folder": (("",), _folder),
    "permission": (("",), _forbid),
    "swap files": (("",), _swap),
    "line twice": ((*JSON, ".yaml", ".txt"), _twice),
    "other type": (JSON, _retype),
}
