"""An endpoint in a process of its own, for ``endpoint_table.py``; its commands come by lines.

    python endpoint_server.py MODEL scripted|vllm

``open COUNT RECORD`` gives so many runs a key each; ``close`` ends them, and says how many
exchanges each has recorded and how many of them are not of its run.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, GenerationRequest, RunKey, WeightVersion
from trinity_serve.endpoint.server import EndpointHost

if TYPE_CHECKING:
    from trinity.common.ports import RolloutEngine

MAX_LEN = 8192
SAID = "I open the door and go north to the kitchen, where it is warm."


class InstantEngine:
    """Says the same at once, cut to what was asked for."""

    version = WeightVersion(0)

    def __init__(self, form: ChatFormat) -> None:
        self.ids = (*form.encode(SAID), *form.eos_token_ids)

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Return a done future."""
        ids = self.ids[: request.max_new_tokens]
        reply = Completion(
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            finish_reason="stop" if len(ids) == len(self.ids) else "length",
            weight_version=self.version,
        )
        future: Future[list[Completion]] = Future()
        future.set_result([reply])
        return future


def main() -> None:
    """Obey until the input ends."""
    folder, kind = sys.argv[1:]
    form = ChatFormat.load(folder)
    engine: Any = InstantEngine(form) if kind == "scripted" else vllm_engine(folder)
    settings = ModelSettings(
        model_path="tiny", max_model_len=MAX_LEN, max_response_tokens=64, enable_openai_api=True
    )
    room, models = EndpointHost(), list[ModelWrapper]()
    say({"ready": True})
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "open":
            models = [
                ModelWrapper(engine, form, settings, key=RunKey(run=number), endpoints=room)
                for number in range(int(rest[0]))
            ]
            opened = [model.endpoint(record=rest[1] == "1") for model in models]
            say({"base_url": opened[0].base_url, "keys": [one.key for one in opened]})
        else:
            say({"held_kb": held_kb()} | closed(models, form))
            models = []
    room.close()


def closed(models: list[ModelWrapper], form: ChatFormat) -> dict[str, Any]:
    """End the runs; return what they recorded, and how much of it is another run's."""
    counts, num_foreign, spent_s = [], 0, 0.0
    for number, model in enumerate(models):
        began = time.thread_time()
        experiences = model.extract_experience_from_history()
        spent_s += time.thread_time() - began
        model.end_run()
        counts.append(len(experiences))
        for experience in experiences:
            asked = form.decode(experience.tokens[: experience.prompt_length].tolist())
            num_foreign += f"run {number} " not in asked
    extracted_ms = 1e3 * spent_s / max(sum(counts), 1)
    return {"recorded": counts, "foreign": num_foreign, "extracted_ms": extracted_ms}


def vllm_engine(folder: str) -> RolloutEngine:
    """Return vLLM in this process."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "plugins/trinity-engine-vllm/src"))
    from trinity_engine_vllm.engine import VLLMEngine

    engine: RolloutEngine = VLLMEngine(model_path=folder, max_model_len=MAX_LEN, num_threads=1)
    return engine


def held_kb() -> int:
    """Return the memory that the process holds, on Linux."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() // 1024


def say(answer: dict[str, Any]) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
