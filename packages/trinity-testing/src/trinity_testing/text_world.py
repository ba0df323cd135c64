"""A tiny world made of text, whose best answers are known.

A row of rooms, each with three doors of which a note names one. The named door leads on, any other
back into the same room. As many turns as rooms: who reads the notes gets a return of exactly 1.

>>> world = TextWorld(seed=3, num_rooms=2)
>>> print(world.reset())
Room 1 of 2. Doors: green, black, white. A note says: black.
>>> world.step("I take the black door.")
('Room 2 of 2. Doors: black, yellow, red. A note says: red.', 0.5, False)
>>> world.step(world.best_answer)
('You are out.', 0.5, True)
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import StepWiseRewardWorkflow, Workflow

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows import Task

__all__ = [
    "BEST_RETURN",
    "TextWorld",
    "TextWorldPlanWorkflow",
    "TextWorldStepsWorkflow",
    "TextWorldWorkflow",
]

COLOURS = ("red", "green", "blue", "yellow", "black", "white")
NUM_DOORS = 3
NUM_ROOMS = 2
BEST_RETURN = 1.0
OUT, OVER = "You are out.", "Your time is over."


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """One room."""

    doors: tuple[str, ...]
    right: str  # the door that leads on

    def __str__(self) -> str:
        return f"Doors: {', '.join(self.doors)}. A note says: {self.right}."


class TextWorld:
    """An episode in the world of a seed; equal seeds and sizes, equal worlds.

    Args:
        seed: which world.
        num_rooms: how many rooms, and how many turns.
    """

    def __init__(self, *, seed: int = 0, num_rooms: int = NUM_ROOMS) -> None:
        chance = random.Random(seed)
        self.rooms = []
        for _ in range(num_rooms):
            doors = tuple(chance.sample(COLOURS, NUM_DOORS))
            self.rooms.append(Room(doors=doors, right=chance.choice(doors)))
        self.reset()

    @property
    def best_answers(self) -> list[str]:
        """Return the answers of an episode with the return 1."""
        return [room.right for room in self.rooms]

    @property
    def best_answer(self) -> str:
        """Return the best answer in the room where one stands."""
        return self.rooms[min(self._place, len(self.rooms) - 1)].right

    def reset(self) -> str:
        """Stand in the first room again; return what is seen there."""
        self._place = self._num_turns = 0
        return self._seen()

    def step(self, answer: str) -> tuple[str, float, bool]:
        """Take the first door that the answer names; return what is seen, reward and whether over.

        The rewards of an episode add up to its return, at most 1.
        """
        self._num_turns += 1
        is_right = door_named_in(answer) == self.best_answer
        self._place += is_right
        is_out = self._place == len(self.rooms)
        is_over = is_out or self._num_turns == len(self.rooms)
        seen = OUT if is_out else OVER if is_over else self._seen()
        return seen, BEST_RETURN / len(self.rooms) if is_right else 0.0, is_over

    def _seen(self) -> str:
        return f"Room {self._place + 1} of {len(self.rooms)}. {self.rooms[self._place]}"


class TextWorldWorkflow(Workflow):
    """Walks through a text world, one turn a room; the whole conversation is one experience.

    The row of a task holds ``seed`` and ``num_rooms``.
    """

    can_reset = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"seed": 1},
        "other_raw_task": {"seed": 2},
        "answers": COLOURS[:2],
    }

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.reset(task)

    def reset(self, task: Task) -> None:
        """Enter the world of another task."""
        self.task = task
        self.world = _world_of(task)

    def run(self) -> list[Experience]:
        """Return the conversation, with the return of the episode as its reward."""
        messages = [{"role": "user", "content": self.world.reset()}]
        total, is_over = 0.0, False
        while not is_over:
            (reply,) = self.model.chat(messages, n=1)
            seen, reward, is_over = self.world.step(reply.response_text or "")
            total += reward
            messages.append({"role": "assistant", "content": reply.response_text or ""})
            messages.append({"role": "user", "content": seen})
        experience = self.model.convert_messages_to_experience(messages[:-1])
        experience.reward = total
        return [experience]


class TextWorldPlanWorkflow(TextWorldWorkflow):
    """Asks once for the doors of all rooms; single turn.

    The row of a task holds ``seed`` and ``num_rooms``.
    """

    def run(self) -> list[Experience]:
        """Return the answer, with the return of the doors that it names as its reward."""
        rooms = self.world.rooms
        question = "\n".join(f"Room {number}. {room}" for number, room in enumerate(rooms, 1))
        (experience,) = self.model.chat([{"role": "user", "content": question}], n=1)
        self.world.reset()
        total, is_over = 0.0, False
        for door in doors_named_in(experience.response_text or ""):
            if not is_over:
                _, reward, is_over = self.world.step(door)
                total += reward
        experience.reward = total
        return [experience]


class TextWorldStepsWorkflow(StepWiseRewardWorkflow):
    """Walks through a text world; each turn is an experience, with the reward of its step.

    The row of a task holds ``seed`` and ``num_rooms``.
    """

    can_reset = True
    conformance_args = TextWorldWorkflow.conformance_args

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.reset(task)

    def reset(self, task: Task) -> None:
        """Enter the world of another task."""
        self.task = task
        self.world = _world_of(task)
        self.seen = self.world.reset()
        self.gained = 0.0

    def env_state(self) -> str:
        """Return what is seen."""
        return self.seen

    def step(self, step_num: int) -> bool:
        """Take one door."""
        (reply,) = self.model.chat([{"role": "user", "content": self.seen}], n=1)
        self.seen, self.gained, is_over = self.world.step(reply.response_text or "")
        return not is_over

    def reward(self, exps: list[Experience]) -> float:
        """Return what the door gave."""
        return self.gained


def door_named_in(answer: str) -> str:
    """Return the first colour that an answer names, or an empty text.

    >>> door_named_in("Not a number, but the Red one, not blue.")
    'red'
    """
    return next(iter(doors_named_in(answer)), "")


def doors_named_in(answer: str) -> list[str]:
    """Return the colours that an answer names, in order."""
    return [word for word in re.findall(r"[a-z]+", answer.lower()) if word in COLOURS]


def _world_of(task: Task) -> TextWorld:
    row = task.raw_task
    return TextWorld(seed=int(row.get("seed", 0)), num_rooms=int(row.get("num_rooms", NUM_ROOMS)))
