from __future__ import annotations

import tempfile
from pathlib import Path

from trinity_envs_webshop.synthetic import write_catalogue
from trinity_testing import conformance

_FOLDER = tempfile.TemporaryDirectory()
_DATA = str(Path(_FOLDER.name) / "shop")
write_catalogue(Path(_DATA), num_products=30)
_TASK = {
    "raw_task": {"task_id": 0, "target": ""},
    "other_raw_task": {"task_id": 3, "target": ""},
    "format_args": {"prompt_key": "task_id"},
    "workflow_args": {"data": _DATA, "max_env_steps": 6},
    "answers": [
        "<action>search[table]</action>",
        "I do not know.",
        "<action>click[next >]</action>",
        "<action>click[back to search]</action>",
    ],
}

test_plugin = conformance.suite(
    "webshop",
    args={"workflow/webshop_workflow": _TASK, "workflow/step_wise_webshop_workflow": _TASK},
)
