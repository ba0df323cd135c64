from __future__ import annotations

import tempfile
from pathlib import Path

from tiny_game import write_game
from trinity_testing import conformance

_FOLDER = tempfile.TemporaryDirectory()
_DATA = Path(_FOLDER.name)
_TASK = {
    "raw_task": {"game_file": str(write_game(_DATA, trial=1)), "target": ""},
    "other_raw_task": {"game_file": str(write_game(_DATA, trial=2)), "target": ""},
    "format_args": {"prompt_key": "game_file"},
    "workflow_args": {"data": str(_DATA), "max_env_steps": 4},
    "answers": [
        "<action>go to shelf 1</action>",
        "I do not know.",
        "<action>take mug 1 from shelf 1</action>",
        "<action>look</action>",
    ],
}

test_plugin = conformance.suite(
    "alfworld",
    args={
        "workflow/alfworld_workflow": _TASK,
        "workflow/step_wise_alfworld_workflow": _TASK,
        "workflow/RAFT_alfworld_workflow": _TASK,
        "workflow/RAFT_reflect_alfworld_workflow": _TASK,
    },
)
