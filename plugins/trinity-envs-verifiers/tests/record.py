"""Write what the child answers with the real verifiers: ``python record.py`` into ``recorded``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.errors import EnvError
from trinity.extend import environment_python
from trinity_envs_verifiers.child_process import Child
from trinity_envs_verifiers.environment import ENVIRONMENT
from trinity_envs_verifiers.settings import VerifiersSettings
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

SETTINGS = ModelSettings(
    model_path="scripted", max_model_len=16384, max_response_tokens=512, enable_openai_api=True
)
ASKED = {  # taskset -> the tasks that are run
    "letters.py": [0, 2],
    "faulty.py": [0, 1, 7],
    "no_such_taskset": [],
}


def main() -> None:
    """Play all, and write them."""
    os.chdir(Path(__file__).parent)
    room = EndpointHost()
    model = ModelWrapper(
        ScriptedEngine("eat!", repeat=True),
        script_chat_format(),
        SETTINGS,
        key=RunKey(batch="1", task=0),
        endpoints=room,
    )
    recorded = {name: played(name, tasks, model) for name, tasks in ASKED.items()}
    model.close_endpoints()
    room.close()
    text = json.dumps(recorded, indent=1).replace(os.getcwd(), "<HERE>") + "\n"
    Path("recorded").mkdir(exist_ok=True)
    Path("recorded", "child.json").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def played(name: str, tasks: list[int], model: ModelWrapper) -> dict[str, Any]:
    """Return what a child answers about a taskset."""
    child = Child(environment_python(ENVIRONMENT))
    settings = VerifiersSettings.of({"taskset": name})
    endpoint = model.endpoint()
    about = {"base_url": endpoint.base_url, "key": endpoint.key, "model": endpoint.model}
    told = {"load": answer(child, "load", settings.message())}
    told["runs"] = {n: answer(child, "run", {"task": n, **about}) for n in tasks}
    told["rows"] = answer(child, "rows", {"limit": 2}) if tasks else None
    child.close()
    return told


def answer(child: Child, what: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as it came."""
    try:
        return {"result": child.ask(what, message)[1].result(600)}
    except EnvError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
