"""Small runs in forked processes: make one, kill one, let one go on, compare what they came to."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import os
import pkgutil
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDED = (
    "transformers.models.qwen3.modeling_qwen3",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "omegaconf",
    "rich.live",
    "rich.table",
)
NOT_NEEDED = ("trinity.runtime.ray", "trinity.synchronizer.broadcast_sync")
CAPABILITIES_V3 = 0x20080522
PASSES_PERMISSIONS = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
RUN = Path("runs/fuzz/run")  # of a run's folder
STORED = "stored.jsonl"  # of a run's folder, where the buffer is a file
LIMIT_S = 120.0  # of a run that takes a second or two
REWARD = """
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("letters")
class Letters(RewardFn):
    def __call__(self, response=None, **kwargs):
        return {"letters": sum(map(str.isalpha, response or "")) / 16}
"""


def import_what_is_needed() -> None:
    """Import once what each forked run needs, plugins and what is imported late included."""
    import trinity
    from trinity.extend import get_manager, set_manager

    for module in NEEDED:
        importlib.import_module(module)
    for found in pkgutil.walk_packages(trinity.__path__, "trinity.", onerror=lambda _: None):
        if not found.name.startswith(NOT_NEEDED) and "__main__" not in found.name:
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(found.name)
    get_manager().digest()
    set_manager(None)


def write_inputs(folder: Path, variant: str, *, num_rows: int) -> None:
    """Write the model, the rows, the reward and the configuration of a small run."""
    import yaml

    folder.mkdir()
    shutil.copytree(_model(folder.parent), folder / "model")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "letters.py").write_text(REWARD)
    rows = [{"question": f"{n} + 1 =", "answer": str(n + 1)} for n in range(num_rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.yaml").write_text(yaml.safe_dump(_config(variant)))


def _model(place: Path) -> Path:
    """Return the model of all runs of a place; it is made once."""
    from trinity_testing.tiny import make_tiny_model

    model = place / "model"
    if not model.exists():
        make_tiny_model(model, vocab=259, hidden=16, layers=1)
    return model


def _config(variant: str) -> dict[str, Any]:
    taskset = {
        "name": "rows",
        "path": "rows.jsonl",
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "simple_workflow",
        "default_reward_fn_type": "letters",
    }
    config: dict[str, Any] = {
        "project": "fuzz",
        "name": "run",
        "checkpoint_root_dir": "runs",
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "optimizer": {"lr": 1e-3}},
        "model": {"model_path": "model", "max_model_len": 64, "max_response_tokens": 6},
        "buffer": {
            "batch_size": 2,
            "train_batch_size": 6,
            "total_epochs": 1,
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {"eval_on_startup": False},
        "trainer": {"save_interval": 1},
        "monitor": {"monitor_type": "jsonl"},
    }
    buffer: dict[str, Any] = {"name": "between"}
    if variant == "file":
        buffer |= {"storage_type": "file", "path": STORED}
    if variant == "ledger":
        buffer |= {"storage_type": "sql"}
    if variant == "replay":
        config["synchronizer"] = {"sync_style": "dynamic_by_explorer"}
        args = {"decay": 0.1}
        buffer["replay_buffer"] = {
            "enable": True, "reuse_cooldown_time": 0, "priority_fn_args": args,
        }  # fmt: skip
    config["buffer"]["trainer_input"] = {"experience_buffer": buffer}
    return config


def results(folder: Path) -> dict[str, Any]:
    """Return weights, history and metrics of a run that ended (Any: by what they are)."""
    from safetensors.torch import load_file

    run = folder / RUN
    last = max(run.glob("global_step_*[0-9]"), key=lambda p: int(p.name.rpartition("_")[2]))
    weights = load_file(last / "actor" / "huggingface" / "model.safetensors")
    with contextlib.suppress(OSError, ValueError):
        history = [json.loads(line)["eids"] for line in (run / "history.jsonl").open()]
        rows = [json.loads(line) for line in (run / "monitor" / "metrics.jsonl").open()]
        metrics = [{k: v for k, v in row.items() if "time/" not in k} for row in rows]
        return {"step": last.name, "weights": weights, "history": history, "metrics": metrics}
    return {"step": last.name, "weights": weights, "history": [], "metrics": []}


def is_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two runs came to the same."""
    import torch

    if one["step"] != other["step"] or one["history"] != other["history"]:
        return False
    pairs = list(zip(one["metrics"], other["metrics"], strict=False))
    return (
        len(one["metrics"]) == len(other["metrics"])
        and all(_is_near(a, b) for a, b in pairs)
        and all(
            torch.allclose(w, other["weights"][n], atol=1e-5) for n, w in one["weights"].items()
        )
    )


def _is_near(row: dict[str, Any], other: dict[str, Any]) -> bool:
    return row.keys() == other.keys() and all(
        value == other[name]
        if isinstance(value, str | None)
        else math.isclose(value, other[name], rel_tol=1e-5, abs_tol=1e-5)
        for name, value in row.items()
    )


def run(folder: Path, *, dies_in: int = 0) -> tuple[int | None, str]:
    """Run the command in a forked process; return its exit code (None: it hung) and its words."""
    return forked(folder, lambda: _train(dies_in))


def forked(folder: Path, work: Callable[[], None]) -> tuple[int | None, str]:
    """Do something in a forked process that stands in a folder, and return as :func:`run` does."""
    said = folder / "said.txt"
    pid = os.fork()
    if pid == 0:
        with said.open("w") as file:
            os._exit(_code_of(folder, file, work))
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), said.read_text()
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None, said.read_text()


def _code_of(folder: Path, file: Any, work: Callable[[], None]) -> int:
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            os.chdir(folder)
            _leave_out_what_is_not_compared()
            _obey_permissions()
            work()
        except SystemExit as ended:
            return int(ended.code or 0)
        except BaseException:  # noqa: BLE001 -- the last thing this process does
            traceback.print_exc()
            return 3
    return 0


def _train(dies_in: int) -> None:
    sys.argv = ["trinity", "run", "--local", "-c", "run.yaml", "--plugin-dir", "plugins"]
    if dies_in:
        _die_in(dies_in)
    from trinity.cli.main import main as trinity

    trinity()


def _leave_out_what_is_not_compared() -> None:
    """Draw no picture, and leave it to the machine when a file reaches the disk."""
    from matplotlib.figure import Figure

    Figure.savefig = lambda *_, **__: None  # type: ignore[method-assign]
    os.fsync = lambda _: None  # type: ignore[assignment]


def _obey_permissions() -> None:
    """Give up what lets the superuser of Linux read and write files that forbid it."""
    if sys.platform != "linux" or os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)()  # twice effective, permitted, inheritable
    if libc.capget(head, sets):
        raise OSError(ctypes.get_errno(), "the capabilities cannot be read")
    sets[0] &= ~PASSES_PERMISSIONS
    if libc.capset(head, sets):
        raise OSError(ctypes.get_errno(), "the capabilities cannot be given up")


def _die_in(step: int) -> None:
    """Kill this process when that optimizer step begins."""
    from trinity.trainer.torch_trainer import TorchTrainer

    train_step = TorchTrainer.train_step

    def deadly(self: Any, experiences: Any, *, step: int, last: int = step) -> Any:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return train_step(self, experiences, step=step)

    TorchTrainer.train_step = deadly  # type: ignore[method-assign]
