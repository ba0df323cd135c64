"""In which settings runs differ, and which of them differ in their seed alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trinity_studio.view.run import Run

__all__ = ["NO_VALUE", "differing", "grouped", "settings_of", "without_seeds", "written"]

Settings = dict[str, str]

NO_VALUE = "\u2013"
_MOST_KNOWN = 32
_KNOWN: dict[tuple[int, ...], tuple[list[Settings], list[str]]] = {}  # asked for at each look
# They say which run it is, and not what it does.
_NAMES = {"name", "group", "project", "checkpoint_root_dir", "ray_namespace", "sweep"}


def settings_of(run: Run) -> Settings:
    """Return the settings of a run as people may see them, without its names and folders."""
    found = run.provenance()
    if run.plain is None or run.plain[0] is not found:
        own = run.directory.absolute()
        folders = [str(own), str(own.parent)]
        settings = {}
        for path, value in found.leaves.items():
            if path.partition(".")[0] in _NAMES:
                continue
            for folder in folders:
                value = value.replace(folder, "<run>")  # noqa: PLW2901
            settings[path] = value
        run.plain = found, settings
    return run.plain[1]


def differing(found: Iterable[Settings]) -> list[str]:
    """Return the settings that are not the same in all runs, in the order of their files."""
    rows = list(found)
    key = tuple(map(id, rows))
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = rows, _differing(rows)  # with the rows, so that no other takes their ids
    return _KNOWN[key][1]


def _differing(rows: Sequence[Settings]) -> list[str]:
    everywhere = set(rows[0].items()).intersection(*(row.items() for row in rows)) if rows else {}
    others = {path for row in rows for path, _ in row.items() - everywhere}
    paths = dict.fromkeys(path for row in rows for path in row) if others else {}
    return [path for path in paths if path in others]


def grouped(runs: Mapping[int, Run]) -> list[tuple[str, dict[int, Run]]]:
    """Return the runs in groups of which each differs in its seeds alone, with their labels."""
    found = {place: settings_of(run) for place, run in runs.items()}
    paths = without_seeds(differing(found.values()))
    groups: dict[tuple[str, ...], dict[int, Run]] = {}
    for place, run in runs.items():
        key = tuple(found[place].get(path, NO_VALUE) for path in paths)
        groups.setdefault(key, {})[place] = run
    kept = list(groups.values())
    firsts = [found[next(iter(own))] for own in kept]
    by_hand = written(paths, runs.values())
    telling = [sorted(one, key=lambda path: _num_same(path, firsts)) for one in (by_hand, paths)]
    for chosen in (by_hand, *telling, paths):
        labels = [_label(chosen, one) for one in firsts]
        if len(set(labels)) == len(labels):
            break
    named = zip(labels, kept, strict=True)
    return [(f"{label} ({len(own)} runs)" if len(own) > 1 else label, own) for label, own in named]


def _num_same(path: str, firsts: Sequence[Settings]) -> int:
    """Return how many groups have the value that another has: the fewer, the more it tells."""
    return len(firsts) - len({one.get(path, NO_VALUE) for one in firsts})


def written(paths: Sequence[str], runs: Iterable[Run]) -> list[str]:
    """Return those of the paths that somebody wrote in one of the runs; others follow from them."""
    by_hand = {path for run in runs for path in run.provenance().written}
    return [path for path in paths if path in by_hand]


def _label(paths: Sequence[str], settings: Settings) -> str:
    pairs = [(path, settings.get(path, NO_VALUE)) for path in paths]
    parts = [f"{path.rpartition('.')[2]}={value}"[:60] for path, value in pairs]
    more = f", {len(parts) - 3} more" if len(parts) > 3 else ""
    return f"{', '.join(parts[:3]) or 'the same settings'}{more}"


def without_seeds(paths: Iterable[str]) -> list[str]:
    """Return the paths of settings that are no seeds."""
    return [path for path in paths if path.rpartition(".")[2] != "seed"]
