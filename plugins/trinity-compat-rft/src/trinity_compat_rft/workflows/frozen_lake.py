"""Walk over a frozen lake to the goal, one move a turn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import MultiTurnWorkflow
from trinity.errors import BadTaskError, ConfigError

from trinity_compat_rft.workflows.lake import MOVES, Lake, random_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = ["SYSTEM_PROMPT", "FrozenLakeWorkflow", "action_of", "lake_of", "turn_text"]

SYSTEM_PROMPT = """You are a helpful assistant. You are walking on a frozen lake.

FrozenLake Quick Guide
Goal: bring the player (P) to the goal (G). Both must stand on the same tile.

Symbols:
_ Frozen | O Hole | G Goal | P Player

Rules:
1. Do not fall into a hole (O).
2. The ice may be slippery: now and then a move goes to the side of its direction.

Valid Action (separated by | ):
Up | Down | Left | Right

Rewards:
Fall into hole: 0
Reach goal: +1.0

Each turn shows where you are. Think about the way with the fewest steps, then give the NEXT ACTION
alone in ``` ```. To move up, for example, end your reply with ```Up```. The last thing in ``` ```
must be one of Up, Down, Left, Right.
"""
UNMOVED = (
    "Your last response did not move you: it was invalid, or something is in the way. Check the "
    "action and its form: the NEXT ACTION alone in ``` ```, such as ```Up```."
)
MAX_RESPONSE_TOKENS = 10240  # of all replies and observations of a walk
ARGUMENTS = {"env_max_steps", "agent_max_steps", "max_steps", "is_slippery", "desc"}
_FENCED = re.compile(r"```(.*?)```", re.DOTALL)


class FrozenLakeWorkflow(MultiTurnWorkflow):
    """The reward is 1 if the player reaches the goal, else 0.

    The row's columns: ``size`` of the map, ``p``, the share of ice (0.8), and ``seed`` (42).

    Arguments (``workflow_args``):
        env_max_steps: how far a map's way may be, 8.
        agent_max_steps: most turns, 10.
        max_steps: older name of both; each by its own name comes first.
        is_slippery: moves may slip to either side, each with probability 1/3; false.
        desc: the rows of one map for all tasks, such as ``["SFF", "FHF", "FFG"]``.
    """

    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"size": 3, "p": 0.9, "seed": 1},
        "other_raw_task": {"size": 4, "p": 0.8, "seed": 2},
        "workflow_args": {"agent_max_steps": 4},
        "answers": ["```Right```", "I stay.", "```Down```", "```Left```"],
    }

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse an argument that does not exist, and a map without start or goal."""
        unknown = set(arguments) - ARGUMENTS
        if unknown:
            raise ConfigError(
                f"frozen_lake_workflow has no argument {sorted(unknown)[0]!r}. It takes: "
                f"{', '.join(sorted(ARGUMENTS))}."
            )
        text = "".join(arguments.get("desc") or ["SG"])
        if text.count("S") != 1 or "G" not in text or set(text) - set("SFHG"):
            raise ConfigError(
                f"desc is {arguments['desc']!r}. Give the rows of a map, of the letters S (once), "
                f"F, H and G."
            )

    async def run_async(self) -> list[Experience]:
        """Return the walk as one experience."""
        arguments = self.task.workflow_args
        lake = lake_of(self.task, arguments)
        messages = [{"role": "system", "content": SYSTEM_PROMPT}]
        reward, num_steps, status, was_unmoved, first = 0.0, 0, None, False, 0
        limit = int(arguments.get("agent_max_steps", arguments.get("max_steps", 10)))
        while num_steps < limit and not lake.is_over:
            text = turn_text(lake, num_steps, limit=limit, was_unmoved=was_unmoved)
            messages.append({"role": "user", "content": text})
            reply = (await self.model.chat_async(messages, n=1))[0]
            messages.append({"role": "assistant", "content": reply.response_text or ""})
            before, action = lake.place, action_of(reply.response_text or "")
            reward += lake.move(action) if action else 0.0
            was_unmoved = lake.place == before
            num_steps += 1
            first = first or reply.prompt_length
            if len(reply.tokens) - first >= MAX_RESPONSE_TOKENS and not lake.is_over:
                status = "response_truncated"
                break
        info = {"env_steps": num_steps, "env_done": int(lake.is_over), "test_score": reward}
        return [await self.process_messages_to_experience_async(messages, reward, info, status)]


def lake_of(task: Task, arguments: Mapping[str, Any]) -> Lake:
    """Return the lake of a row.

    Raises:
        BadTaskError: the row says no size, or there is no such map.
    """
    row, rows = task.raw_task, arguments.get("desc")
    seed = int(row.get("seed", 42))
    if rows is None:
        if "size" not in row:
            raise BadTaskError(
                f"{task.origin}: the row has no 'size' of its map. Add it, or give one map as "
                f"workflow_args.desc."
            )
        rows = random_map(
            size=int(row["size"]),
            p=float(row.get("p", 0.8)),
            seed=seed,
            max_steps=int(arguments.get("env_max_steps", arguments.get("max_steps", 8))),
        )
    return Lake(rows, is_slippery=bool(arguments.get("is_slippery", False)), seed=seed)


def action_of(reply: str) -> str | None:
    """Return the move in the last ``` ```, in words or as its number from 1; None: none.

    >>> action_of("Down is free. ```Down```"), action_of("```1```"), action_of("Up")
    ('down', 'left', None)
    """
    fenced = _FENCED.findall(reply)
    said = fenced[-1].strip().lower() if fenced else ""
    numbered = {str(number): move for number, move in enumerate(MOVES, 1)}
    return numbered.get(said, said if said in MOVES else None)


def turn_text(lake: Lake, num_steps: int, *, limit: int, was_unmoved: bool) -> str:
    """Return what the player is told before a move."""
    lines = [
        f"Current Observation ({num_steps}): \n{lake}",
        "P is not on G yet. What is your next action?",
    ]
    if was_unmoved:
        lines.append(UNMOVED)
    lines.append(f"The maximum number of steps remaining is {limit - num_steps}.")
    return "\n".join(lines)
