"""Make games of the real engine without end, each from its seed and its number alone.

    (seed, split, index) --draw--> room and task --> problem, walkthrough --play--> proved game
                           ^---- again, where it belongs to another split ----'

A game is proved by playing its walkthrough in the engine; the planner is never asked.
"""

from __future__ import annotations

import hashlib
import json
import random
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import ConfigError, DataError, unknown_name

from trinity_envs_alfworld.games import SPLITS, TASK_TYPES
from trinity_envs_alfworld.generate_plan import walkthrough
from trinity_envs_alfworld.generate_problem import engine_names, problem
from trinity_envs_alfworld.generate_room import SIZES, drawn
from trinity_envs_alfworld.generate_rules import ROOMS, WORKER, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trinity_envs_alfworld.generate_things import Room

__all__ = ["PLAY_TIMEOUT_S", "GeneratedGame", "Generator", "games", "is_won"]

PLAY_TIMEOUT_S = 300.0  # for a whole walkthrough; a large room takes 4
_PARTS = 10  # an opening text belongs to one part of ten: eight train, one each validates
_PART_OF = {8: "valid_seen", 9: "valid_unseen"}
_MOST_ATTEMPTS = 2000
_MOST_REFUSED = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedGame:
    """A game and how it is won."""

    seed: int
    split: str
    index: int
    size: str
    room: Room
    sentence: str  # the task in words, "put a mug in cabinet"
    problem: str
    walkthrough: tuple[str, ...]

    @property
    def task_type(self) -> str:
        """Return one of ``TASK_TYPES``."""
        return self.room.goal.task_type

    @property
    def folder(self) -> str:
        """Return the game's folder below that of its split, named as the published ones are."""
        goal = self.room.goal
        kinds = f"{self.task_type}-{goal.item}-None-{goal.place or goal.lamp}-{self.room.scene}"
        mark = hashlib.sha256(self.problem.encode()).hexdigest()[:6]
        return f"{kinds}/trial_T{self.seed:08d}_{self.index:06d}_{mark}"

    def content(self, rules: Rules) -> dict[str, Any]:
        """Return what the game file holds."""
        return {
            "pddl_domain": rules.domain,
            "grammar": rules.grammar.replace("UNKNOWN GOAL", self.sentence),
            "pddl_problem": self.problem,
            "solvable": True,
            "walkthrough": list(self.walkthrough),
        }

    def trajectory(self) -> dict[str, Any]:
        """Return what ``traj_data.json`` holds: the fields that readers of texts use."""
        goal = self.room.goal
        return {
            "task_id": self.folder.rpartition("/")[2],
            "task_type": self.task_type,
            "pddl_params": {
                "object_target": goal.item,
                "parent_target": goal.place,
                "toggle_target": goal.lamp,
                "mrecep_target": "",
                "object_sliced": False,
            },
            "scene": {
                "floor_plan": f"FloorPlan{self.room.scene}",
                "scene_num": self.room.scene,
            },
            "turk_annotations": {"anns": [{"task_desc": self.sentence}]},
            "generated": {"seed": self.seed, "index": self.index, "size": self.size},
        }


class Generator:
    """The games of a seed; each is made from its split and index alone.

    Args:
        rules: of the installed package.
        seed: another seed, other games.
        sizes: names of ``SIZES``, in turn.
        task_types: of ``TASK_TYPES``, in turn.
        rooms: of ``ROOMS``, one of those of the task at random.

    Raises:
        ConfigError: a size, task type or room is unknown, or a task is not done in these rooms.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        seed: int = 0,
        sizes: Sequence[str] = ("small",),
        task_types: Sequence[str] = TASK_TYPES,
        rooms: Sequence[str] = ROOMS,
    ) -> None:
        _check_names("size", sizes, SIZES)
        _check_names("task type", task_types, TASK_TYPES)
        _check_names("room", rooms, ROOMS)
        for task_type in task_types:
            _check_rooms(task_type, rooms, rules)
        self.rules, self.seed = rules, seed
        self._sizes, self._task_types = tuple(sizes), tuple(task_types)
        self._scenes = {
            split: [
                number
                for number, scene in rules.scenes.items()
                if scene.room in rooms and scene.is_held_out == (split == "valid_unseen")
            ]
            for split in SPLITS
        }

    def candidates(self, split: str, index: int) -> Iterator[GeneratedGame]:
        """Return games that belong to the split, none of them played yet."""
        _check_names("split", [split], SPLITS)
        turn, place = divmod(index, len(self._task_types))
        size, task_type = self._sizes[turn % len(self._sizes)], self._task_types[place]
        for attempt in range(_MOST_ATTEMPTS):
            source = f"{self.seed}/{split}/{index}/{size}/{task_type}/{attempt}"
            rng = random.Random(source)  # of a text: the same in every process
            scenes = self._scenes[split]
            room = drawn(rng, rules=self.rules, task_type=task_type, size=size, scenes=scenes)
            if room is None:
                continue
            sentence = self._sentence(rng, room)
            if _split_of(room, sentence) == split:
                yield self._game(room, sentence, split=split, index=index, size=size)

    def game(
        self, split: str, index: int, *, is_good: Callable[[GeneratedGame], bool] | None = None
    ) -> GeneratedGame:
        """Return the game; with ``is_good``, the first of its candidates that is.

        Raises:
            DataError: none is.
        """
        num_refused = 0
        for candidate in islice(self.candidates(split, index), _MOST_REFUSED):
            if is_good is None or is_good(candidate):
                return candidate
            num_refused += 1
        raise DataError(
            f"no game {index} of {split}: {num_refused} were drawn, and none of them is won by its "
            f"walkthrough. Allow another size, task type or room, or take another seed; where none "
            f"helps, the installed alfworld is not one that this was written for (0.4.2)."
        )

    def _sentence(self, rng: random.Random, room: Room) -> str:
        goal = room.goal
        kinds = {"obj": goal.item, "recep": goal.place, "toggle": goal.lamp}
        text = rng.choice(self.rules.goals[goal.task_type][1])
        return text.format(**{slot: kind.lower() for slot, kind in kinds.items()})

    def _game(
        self, room: Room, sentence: str, *, split: str, index: int, size: str
    ) -> GeneratedGame:
        return GeneratedGame(
            seed=self.seed,
            split=split,
            index=index,
            size=size,
            room=room,
            sentence=sentence,
            problem=problem(room, rules=self.rules, title=f"plan_{index}"),
            walkthrough=tuple(walkthrough(room, rules=self.rules)),
        )


def games(
    seed: int = 0,
    *,
    split: str = "train",
    sizes: Sequence[str] = ("small",),
    task_types: Sequence[str] = TASK_TYPES,
    rooms: Sequence[str] = ROOMS,
    prove: bool = True,
) -> Iterator[tuple[GeneratedGame, Mapping[str, Any]]]:
    """Return games and what their files hold, without end.

    Args:
        seed: another seed, other games.
        split: one of ``SPLITS``.
        sizes: names of ``SIZES``, in turn.
        task_types: of ``TASK_TYPES``, in turn.
        rooms: of ``ROOMS``.
        prove: play each in the engine first, which takes a hundred times as long.

    Raises:
        ConfigError: a size, split, task type or room is unknown, or a task is not done there.
        PluginError: alfworld is not installed.
    """
    with closing(EnvProcess(WORKER, timeouts={"play": PLAY_TIMEOUT_S})) as child:
        rules = Rules.of(child.call("rules"))
        generator = Generator(rules, seed=seed, sizes=sizes, task_types=task_types, rooms=rooms)
        is_good = (lambda game: is_won(child, game, rules)) if prove else None
        for index in count():
            game = generator.game(split, index, is_good=is_good)
            yield game, game.content(rules)


def is_won(child: EnvProcess, game: GeneratedGame, rules: Rules) -> bool:
    """Return whether the engine takes each command and the last one wins, with reward 1."""
    commands = list(game.walkthrough)
    played = child.call("play", game.content(rules), commands)
    is_whole = len(played["texts"]) == len(commands) + 1
    return bool(is_whole and played["won"] and played["reward"] == 1.0)


def _split_of(room: Room, sentence: str) -> str:
    """Return the split that the opening text belongs to, whatever the seed.

    Two games that begin with the same text are in one split, so that a validation split shares
    none with the training games, of this seed or another.
    """
    names = engine_names(room)
    opening = json.dumps([sorted(names[place.name] for place in room.places), sentence])
    part = int(hashlib.sha256(opening.encode()).hexdigest(), 16) % _PARTS
    return _PART_OF.get(part, "train")


def _check_rooms(task_type: str, rooms: Sequence[str], rules: Rules) -> None:
    possible = rules.room_kinds[task_type]
    if not set(possible) & set(rooms):
        raise ConfigError(
            f"{task_type} is not done in a {' or '.join(rooms)}. Allow {' or '.join(possible)}, "
            f"or leave that task type out."
        )


def _check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(given)
    for name in names:
        if name not in known:
            raise ConfigError(unknown_name(what, name, known))
    if not names:
        raise ConfigError(f"no {what} is given. Known: {', '.join(known)}.")
