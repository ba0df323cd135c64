"""Evaluation rows that are trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import TrinityError

from trinity_lab.advisors.following import Following, Symptom
from trinity_lab.data_report import plain_prompt, read_rows

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.config.buffer import TasksetConfig
    from trinity.common.ports import Observation

_MOST_BYTES = 50_000_000  # of a file that is read
_MOST = 0.02  # of the evaluation rows


class Overlap(Following):
    """Compares the prompts of the tasksets with those of the evaluation sets, once."""

    def __init__(self, config: Config) -> None:
        inputs = config.buffer.explorer_input
        self._train, self._held = list(inputs.tasksets), list(inputs.eval_tasksets)
        self._is_done = False

    def _look(self, seen: Observation) -> Symptom | None:
        if self._is_done:
            return None
        self._is_done = True
        known = {prompt for one in self._train for prompt in _prompts(one)}
        for taskset in self._held if known else ():
            prompts = _prompts(taskset)
            both = [one for one in prompts if one in known]
            if len(both) > _MOST * len(prompts):
                text = (
                    f"{len(both)} of {len(prompts)} prompts of evaluation set {taskset.name} "
                    f"({taskset.path}) are training prompts too, such as {both[0][:60]!r}"
                )
                remedy = (
                    "Take them out of one of the two files (trinity data names the rows), or hold "
                    "a part of one file out: split: train[:95%] and train[95%:]"
                )
                return Symptom(seen=text, remedy=remedy)
        return None


def _prompts(taskset: TasksetConfig) -> list[str]:
    path = Path(taskset.path or "")
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return []
    try:
        rows = read_rows(
            str(path),
            prompt_key=taskset.format.prompt_key,
            answer_key=taskset.format.response_key,
            split=taskset.split,
        )
    except TrinityError:  # the run itself tells what is wrong with it
        return []
    return [plain_prompt(row.prompt) for row in rows if row.prompt]
