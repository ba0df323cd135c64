"""Queues: what each put and get of a sequence does."""

from __future__ import annotations

from functools import partial

from trinity.buffer.queue import QueueStorage
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import Experience
from trinity.extend import get_manager
from trinity_algorithms.replay.priority_queue import PriorityQueue

TIMEOUT_S = 0.2


def implementation(case):
    """Return what plays a sequence of operations."""
    queues = {"fifo_queue": Fifo, "priority_queue": ByPriority}
    if case["op"] != "queue_trace" or case["fn"] not in queues:
        return None
    return partial(_play, queues[case["fn"]], case)


class Fifo:
    """The queue storage, one experience a batch."""

    def __init__(self, args):
        config = ExperienceBufferConfig(capacity=args["capacity"], max_read_timeout=TIMEOUT_S)
        self._queue = QueueStorage(config)

    def put(self, rows):
        self._queue.write(rows)

    def get(self, min_model_version):
        return self._queue.read(1, timeout_s=TIMEOUT_S, min_model_version=min_model_version)

    def sleep(self, seconds):
        """Do nothing: nothing in it depends on the time."""

    def close(self):
        self._queue.close()
        return self._queue.available() == 0

    def __len__(self):
        return self._queue.available()


class ByPriority:
    """The priority queue, by a clock that only a sleep moves."""

    def __init__(self, args):
        self._now = 0.0
        judge = get_manager().load("priority_fn", args.get("priority_fn", "linear_decay"))
        self._queue = PriorityQueue(
            args["capacity"],
            judge(**args.get("priority_fn_args", {})),
            reuse_cooldown_s=args.get("reuse_cooldown_time"),
            clock=lambda: self._now,
        )

    def put(self, rows):
        self._queue.put(rows)

    def get(self, min_model_version):
        return self._queue.get(timeout_s=0.0, min_model_version=min_model_version)

    def sleep(self, seconds):
        self._now += seconds

    def close(self):
        return self._queue.close()

    def __len__(self):
        return len(self._queue)


def _play(kind, case, inputs):
    queue, oldest, log = kind(case["args"]), 0, []
    for name, *values in inputs["ops"]:
        entry = {"op": name}
        if name == "min_version":
            oldest = values[0]
        elif name == "sleep":
            queue.sleep(values[0])
        elif name == "close":
            entry["stopped"] = queue.close()
        elif name == "get":
            entry |= _got(queue, oldest)
        else:
            entry |= _put(queue, values)
        log.append(entry | {"qsize": len(queue)})
    return {"log": log}


def _put(queue, values):
    try:
        queue.put([_a_row(*values)] if values else [])
    except TimeoutError:
        return {"blocked": True}
    return {}


def _got(queue, oldest):
    try:
        (row,) = queue.get(oldest)
    except TimeoutError:
        return {"timeout": True}
    except StopIteration:
        return {"stop": True}
    return {"tag": row.info["tag"], "use_count": row.info.get("use_count", 0)}


def _a_row(tag, model_version, use_count=0):
    info = {"tag": tag, "model_version": model_version, "use_count": use_count}
    return Experience(tokens=[1, 2], info=info)
