"""Storages, a monitor, an operator and a workflow."""

import json
import threading

from trinity.common.workflows import Workflow


class FrozenSieve:
    """A list; what is in it is gone when the process is.

    Args:
        config: the buffer's section.
        path: not used.
        chat_format: not used.
        total_epochs: not used.
    """

    def __init__(self, config, *, path=None, chat_format=None, total_epochs=1):
        self.rows = []
        self.changed = threading.Condition()
        self.is_closed = False

    def write(self, experiences):
        with self.changed:
            self.rows += experiences
            self.changed.notify_all()

    def read(self, count, *, timeout_s, min_model_version=0):
        with self.changed:
            if not self.changed.wait_for(
                lambda: len(self.rows) >= count or self.is_closed, timeout_s
            ):
                raise TimeoutError("too few")
            taken, self.rows = self.rows[:count], self.rows[count:]
        if not taken:
            raise StopIteration
        return taken

    def available(self):
        return len(self.rows)

    def close(self):
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


class FrozenStorage(FrozenSieve):
    """A list that a checkpoint holds."""

    def waiting(self):
        return list(self.rows)


class FrozenOperator:
    """Counts."""

    def process(self, exps):
        return exps, {"frozen_count": float(len(exps))}

    def close(self):
        pass


class FrozenMonitor:
    """Writes one line a step."""

    def __init__(self, *, directory, role):
        directory.mkdir(parents=True, exist_ok=True)
        self.file = (directory / f"frozen-{role}.jsonl").open("a")

    def log(self, metrics, *, step):
        self.file.write(json.dumps({"step": step, "num": len(metrics)}) + "\n")

    def close(self):
        self.file.close()


class FrozenWorkflow(Workflow):
    """Asks once; the reward is the length of the answer."""

    def __init__(self, *, task, model, auxiliary_models=None):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)

    def run(self):
        responses = self.model.chat([{"role": "user", "content": self.task.raw_task["question"]}])
        for response in responses:
            response.reward = float(len(response.response_text or "") % 3)
        return responses
