"""Write generated games in the layout of the published data."""

from __future__ import annotations

import json
import queue
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import ConfigError, DataError

from trinity_envs_alfworld.data_check import GENERATED
from trinity_envs_alfworld.games import DATA_VERSION, GAME_FILE, SPLITS, TASK_TYPES
from trinity_envs_alfworld.generate import (
    PLAY_TIMEOUT_S,
    GeneratedGame,
    Generator,
    is_won,
)
from trinity_envs_alfworld.generate_rules import ROOMS, WORKER, Rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["SHARES", "GenerateSummary", "write_games"]

SHARES: Mapping[str, float] = {"train": 0.8, "valid_seen": 0.1, "valid_unseen": 0.1}


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateSummary:
    """What was written."""

    num_games: Mapping[str, int]  # by split
    num_of_type: Mapping[str, int]
    num_refused: int  # their walkthrough did not win: not written, another took the place


def write_games(  # noqa: PLR0913 -- what a set of games is
    root: Path,
    *,
    count: int,
    seed: int = 0,
    sizes: Sequence[str] = ("small",),
    task_types: Sequence[str] = TASK_TYPES,
    rooms: Sequence[str] = ROOMS,
    splits: Mapping[str, float] = SHARES,
    num_processes: int = 1,
) -> GenerateSummary:
    """Write games, each won by its walkthrough in the real engine, and say how many of what.

    The same arguments give the same files, whatever the number of processes. Games of an earlier
    call stay beside them.

    Args:
        root: the folder that ``ALFWORLDDATA_VERSION`` names; made if it is not there.
        count: how many games, over all splits.
        seed: another seed, other games.
        sizes: names of ``generate_room.SIZES``, in turn.
        task_types: of ``TASK_TYPES``, in turn.
        rooms: of ``generate_rules.ROOMS``.
        splits: the share of each split; ``valid_unseen`` is played in floor plans of its own.
        num_processes: how many games are played at a time.

    Raises:
        ConfigError: a name is unknown, a task is not done in these rooms, or a share is wrong.
        DataError: the folder holds games that were not generated.
        PluginError: alfworld is not installed.
    """
    _check_folder(root)
    jobs = [(split, n) for split, num in _counts(count, splits).items() for n in range(num)]
    with ExitStack() as stack:
        children = [
            stack.enter_context(closing(EnvProcess(WORKER, timeouts={"play": PLAY_TIMEOUT_S})))
            for _ in range(max(1, min(num_processes, len(jobs))))
        ]
        rules = Rules.of(children[0].call("rules"))
        generator = Generator(rules, seed=seed, sizes=sizes, task_types=task_types, rooms=rooms)
        shop = _Workshop(generator, children)
        _write_logic(root, rules)
        threads = stack.enter_context(ThreadPoolExecutor(len(children)))
        made = []
        for game in threads.map(shop.proved, jobs):
            _write_game(root / DATA_VERSION / game.split / game.folder, game, rules)
            made.append(game)
    summary = GenerateSummary(
        num_games={split: sum(game.split == split for game in made) for split in SPLITS},
        num_of_type=dict(sorted(Counter(game.task_type for game in made).items())),
        num_refused=shop.num_refused,
    )
    _write_mark(root)
    return summary


class _Workshop:
    """Games made and played, each in a process that is free."""

    def __init__(self, generator: Generator, children: Sequence[EnvProcess]) -> None:
        self._generator = generator
        self._free: queue.SimpleQueue[EnvProcess] = queue.SimpleQueue()
        for child in children:
            self._free.put(child)
        self.num_refused = 0

    def proved(self, job: tuple[str, int]) -> GeneratedGame:
        """Return the game of a split and index, after it was won."""
        split, index = job
        child = self._free.get()
        try:
            return self._generator.game(
                split, index, is_good=lambda game: self._is_good(child, game)
            )
        finally:
            self._free.put(child)

    def _is_good(self, child: EnvProcess, game: GeneratedGame) -> bool:
        is_good = is_won(child, game, self._generator.rules)
        self.num_refused += not is_good
        return is_good


def _counts(count: int, splits: Mapping[str, float]) -> dict[str, int]:
    """Return how many games each split gets: its share, rounded so that the sum is right."""
    unknown = sorted(set(splits) - set(SPLITS))
    if unknown or min(splits.values(), default=0) < 0 or sum(splits.values()) <= 0:
        raise ConfigError(
            f"splits is {dict(splits)}: give each of {', '.join(SPLITS)} a share, at least 0."
        )
    whole = sum(splits.values())
    exact = {split: count * splits.get(split, 0.0) / whole for split in SPLITS}
    counts = {split: int(number) for split, number in exact.items()}
    missing = count - sum(counts.values())
    for split in sorted(SPLITS, key=lambda split: counts[split] - exact[split])[:missing]:
        counts[split] += 1
    return counts


def _check_folder(root: Path) -> None:
    if (root / DATA_VERSION).exists() and not (root / GENERATED).exists():
        raise DataError(
            f"{root / DATA_VERSION} holds games that were not generated: these would be mixed in. "
            f"Give another folder, or move that one away."
        )


def _write_logic(root: Path, rules: Rules) -> None:
    logic = root / "logic"
    logic.mkdir(parents=True, exist_ok=True)
    (logic / "alfred.pddl").write_text(rules.domain)
    (logic / "alfred.twl2").write_text(rules.grammar)
    (root / GENERATED).write_text("")  # until all are written


def _write_mark(root: Path) -> None:
    """Write down how many games the folder holds, those of earlier calls among them."""
    counts = {
        split: sum(1 for _ in (root / DATA_VERSION / split).glob(f"*/*/{GAME_FILE}"))
        for split in SPLITS
    }
    (root / GENERATED).write_text(json.dumps({"num_games": counts}, indent=2) + "\n")


def _write_game(folder: Path, game: GeneratedGame, rules: Rules) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traj_data.json").write_text(json.dumps(game.trajectory(), indent=2) + "\n")
    (folder / "initial_state.pddl").write_text(game.problem)
    (folder / GAME_FILE).write_text(json.dumps(game.content(rules)))
