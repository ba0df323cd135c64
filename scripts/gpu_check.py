"""Try on a GPU what no machine of this project has: ten minutes, one Markdown table.

    python scripts/gpu_check.py                      all items
    python scripts/gpu_check.py decode nccl          some of them

Each item runs in a process of its own with a time limit; one that fails, hangs or is not there is
a row of the table. Paste the table into an issue, or into docs/explanation/gpus.md.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "examples" / "quickstart"
PACKAGES = ("trinity-core", "torch", "transformers", "vllm", "ray", "peft")
MARK = "GPU-CHECK "  # begins the line in which an item says what it found
SIZES = {"layers": 12, "hidden": 768, "heads": 12, "vocab": 32_768}  # 0.16 billion parameters
SMALL = {"layers": 2, "hidden": 64, "heads": 2, "vocab": 512}  # with --small
NO_GPU = "no GPU"


class SkippedError(Exception):
    """An item cannot be tried here; the text says why."""


def pytest_gpu(_sizes: dict[str, int]) -> str:
    """`pytest -m gpu`."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
    tests = ROOT / "packages" / "trinity-core" / "tests"
    files = [str(tests / "engines" / "test_logprobs.py"), str(tests / "synchronizer")]
    ended = subprocess.run(
        [*command, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = (ended.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    if ended.returncode:
        raise RuntimeError(last)
    return last


def quickstart(_sizes: dict[str, int]) -> str:
    """The quickstart, `--local`."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        _called(QUICKSTART / "prepare.py", folder=folder)
        options = ("run", "--local", "--config", QUICKSTART / "quickstart.yaml")
        said = _called("-m", "trinity", *options, folder=folder)
    found = re.findall(r"held_out/reward/mean@4 ([0-9.]+) \(at the start ([0-9.]+)", said)
    if not found or float(found[0][0]) < 0.8:  # the README's is 0.9 and more
        raise RuntimeError(f"it did not learn: {found or said[-200:]}")
    after, before = found[0]
    return f"reward {before} to {after} in {time.monotonic() - began:.0f} s"


def decode(sizes: dict[str, int]) -> str:
    """Decode step of the embedded engine, bfloat16, 64 replies."""
    from trinity.common.ports import GenerationRequest, RunKey
    from trinity.engines.transformers_engine import TransformersEngine

    steps = 128
    engine = TransformersEngine(
        model_path=_model(sizes), max_model_len=512, dtype="bfloat16", device="cuda"
    )

    def answered(number: int) -> float:
        key = RunKey(batch="0", task=number, run=0, request=0, attempt=1)
        asked = GenerationRequest(
            prompt_token_ids=tuple(range(5, 133)),
            key=key,
            n=64,
            max_new_tokens=steps,
            ignore_eos=True,
        )
        began = time.monotonic()
        engine.submit(asked).result(300)
        return time.monotonic() - began

    answered(0)
    seconds = min(answered(1), answered(2))
    engine.close()
    return f"{1000 * seconds / steps:.1f} ms a step, {64 * steps / seconds:,.0f} tokens/s"


def train(sizes: dict[str, int]) -> str:
    """Train step, bfloat16, 16 rows of 512 tokens; its peak beside the plan."""
    import torch
    from trinity.common.config.memory import ModelShape, TrainerMemory

    path = _model(sizes)
    settings = {"precision": "bfloat16", "max_token_len_per_gpu": 8192, "prefix_sharing": "off"}
    made = _trainer(path, settings)
    rows = [_rows(16, prompt=128, response=384, vocab=sizes["vocab"]) for _ in range(4)]
    made.train_step(rows[0], step=1)
    torch.cuda.reset_peak_memory_stats()
    took = []
    for step, batch in enumerate(rows[1:], start=2):
        torch.cuda.synchronize()
        began = time.monotonic()
        metrics = made.train_step(batch, step=step)
        torch.cuda.synchronize()
        took.append(time.monotonic() - began)
    shape = ModelShape.of(json.loads((Path(path) / "config.json").read_text()))
    assert shape is not None
    tokens = int(metrics["perf/tokens_computed"] / metrics["perf/num_micro_batches"])
    plan = TrainerMemory(shape=shape, precision="bfloat16").peak(tokens, scored=tokens * 3 // 4)
    peak = torch.cuda.max_memory_allocated()
    rate = metrics["perf/tokens_computed"] / min(took)
    times = f"{1000 * min(took):.0f} ms a step, {rate:,.0f} tokens/s"
    return f"{times}; peak {peak / 1e9:.2f} GB, planned {plan / 1e9:.2f} GB"


def nccl(_sizes: dict[str, int]) -> str:
    """`nccl`: broadcasts of 256 MiB between all GPUs."""
    import torch
    from torch import distributed, multiprocessing

    if not distributed.is_nccl_available():
        raise SkippedError("this build of torch has no nccl")
    number = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_nccl_rank, args=(number, folder), nprocs=number)
        return (Path(folder) / "said").read_text()


def _nccl_rank(rank: int, size: int, folder: str) -> None:
    import torch
    from torch import distributed

    torch.cuda.set_device(rank)
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group("nccl", init_method=meeting, rank=rank, world_size=size)
    values = torch.full((2**26,), float(rank + 1), device="cuda")
    distributed.broadcast(values, src=0)
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(5):
        distributed.broadcast(values, src=0)
    torch.cuda.synchronize()
    seconds = (time.monotonic() - began) / 5
    assert float(values[-1]) == 1.0
    if rank == 0:
        gpus = f"{size} GPU{'s'[: size > 1]}"
        Path(folder, "said").write_text(f"{gpus}, {2**28 / seconds / 1e9:.1f} GB/s")
    distributed.destroy_process_group()


def cuda_ipc(_sizes: dict[str, int]) -> str:
    """CUDA IPC: another process copies 256 MiB from this one's memory."""
    import torch
    from torch import multiprocessing
    from trinity.synchronizer.cuda_ipc import CudaIpcMemory

    memory, values = CudaIpcMemory(), torch.arange(2**26, dtype=torch.float32, device="cuda")
    handle = memory.write(2**28, [(0, values)])
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    other = context.Process(target=_ipc_copied, args=(handle, answer))
    other.start()
    try:
        seconds, last = answer.get(timeout=60)
    finally:
        other.join(10)
        memory.free()
    assert last == float(values[-1]), "the copy has other numbers"
    return f"{2**28 / seconds / 1e9:.1f} GB/s with its checksum"


def _ipc_copied(handle: object, answer: object) -> None:
    import torch
    from trinity.synchronizer.cuda_ipc import copied

    torch.zeros(1, device="cuda")
    began = time.monotonic()
    flat = copied(handle)  # type: ignore[arg-type]  # as it was pickled
    torch.cuda.synchronize()
    found = (time.monotonic() - began, float(flat.view(torch.float32)[-1]))
    answer.put(found)  # type: ignore[attr-defined]  # a queue


def vllm_sleep(sizes: dict[str, int]) -> str:
    """vLLM: generate, sleep, wake up, generate the same."""
    # As the plugin runs it. Else vLLM forks a process, which cannot use a GPU: this one has asked
    # whether there is one.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # noqa: TID251 -- a script is an edge
    try:
        from vllm import LLM, SamplingParams
    except ImportError as error:
        raise SkippedError("vLLM is not installed") from error
    import torch

    llm = LLM(
        model=_model(sizes), enable_sleep_mode=True, gpu_memory_utilization=0.5, max_model_len=512
    )
    asked = [{"prompt_token_ids": list(range(5, 69))}]
    greedy = SamplingParams(temperature=0.0, max_tokens=32, detokenize=False)

    def reply() -> list[int]:
        return list(llm.generate(asked, greedy)[0].outputs[0].token_ids)

    first, awake = reply(), torch.cuda.mem_get_info()[0]
    began = time.monotonic()
    llm.sleep(level=1)
    asleep, slept = torch.cuda.mem_get_info()[0], time.monotonic()
    llm.wake_up()
    woke = time.monotonic()
    assert reply() == first, "after waking up it answers differently"
    freed = f"{(asleep - awake) / 1e9:.1f} GB freed"
    return f"{freed}; asleep in {slept - began:.1f} s, awake in {woke - slept:.1f} s"


def colocate(sizes: dict[str, int]) -> str:
    """`mode: colocate`, vLLM: sleep, a trainer's step beside it, wake up with other weights."""
    import torch

    try:
        import trinity_engine_vllm.engine as plugin
    except ImportError as error:
        raise SkippedError("trinity-engine-vllm is not installed") from error
    if plugin.installed() != "vllm":
        raise SkippedError("vLLM for GPUs is not installed")
    from trinity.common.ports import GenerationRequest

    path = _model(sizes)
    made = _trainer(path, {"precision": "bfloat16", "max_token_len_per_gpu": 2048})
    engine = plugin.VLLMEngine(
        model_path=path,
        max_model_len=512,
        dtype="bfloat16",
        gpu_memory_utilization=0.5,
        enable_sleep_mode=True,
    )
    asked = GenerationRequest(prompt_token_ids=tuple(range(5, 69)), max_new_tokens=32)

    def reply() -> tuple[int, list[int]]:
        (one,) = engine.submit(asked).result(120)
        return one.weight_version, list(one.token_ids)

    assert reply()[0] == 0
    awake, began = torch.cuda.mem_get_info()[0], time.monotonic()
    engine.sleep(2)
    asleep, slept = torch.cuda.mem_get_info()[0], time.monotonic()
    made.train_step(_rows(4, prompt=128, response=128, vocab=sizes["vocab"]), step=1)
    torch.cuda.empty_cache()
    trained = time.monotonic()
    engine.wake_up(["weights"])
    engine.load_weights(made.snapshot(copy=False))
    engine.wake_up(["kv_cache"])
    woke = time.monotonic()
    assert reply()[0] == 1, "it answers with other weights than the trainer's"
    engine.close()
    freed = f"{(asleep - awake) / 1e9:.1f} GB freed"
    return f"{freed}; asleep in {slept - began:.1f} s, awake in {woke - trained:.1f} s"


def flex_attention(_sizes: dict[str, int]) -> str:
    """FlexAttention against the mask of a tree, forward and backward, 4096 tokens."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention
    from trinity.trainer.prefix_tree import tree_mask

    length, prompt, replies = 4096, 1024, 12  # a prompt, and twelve replies of 256 tokens
    each = (length - prompt) // replies
    ends = [length] * prompt + [prompt + each * (1 + n // each) for n in range(length - prompt)]
    ends_PL = torch.tensor([ends], device="cuda")
    draw = torch.Generator().manual_seed(0)
    drawn = [torch.randn((1, 8, length, 64), generator=draw) for _ in range(3)]
    given = [one.to("cuda", torch.bfloat16) for one in drawn]
    ways = {
        "mask": lambda *qkv: scaled_dot_product_attention(*qkv, attn_mask=tree_mask(ends_PL)),
        "flex": None,
    }

    def sees(_batch: object, _head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (query < ends_PL[0, key])

    blocks = create_block_mask(sees, 1, None, length, length, device="cuda")
    compiled = torch.compile(flex_attention)
    ways["flex"] = lambda *qkv: compiled(*qkv, block_mask=blocks)
    results, times = {}, {}
    for name, way in ways.items():
        for _ in range(3):
            leaves = [one.clone().requires_grad_() for one in given]
            torch.cuda.synchronize()
            began = time.monotonic()
            out = way(*leaves)
            out.float().square().sum().backward()
            torch.cuda.synchronize()
            times[name] = 1000 * (time.monotonic() - began)
        results[name] = [out.detach(), *(leaf.grad for leaf in leaves)]
    pairs = zip(results["flex"], results["mask"], strict=True)
    off = max(float((a.float() - b.float()).norm() / b.float().norm()) for a, b in pairs)
    assert off < 0.02, f"its gradients are off by {off:.3f} of the norm"
    return f"off by {off:.1e}; {times['flex']:.1f} ms, with the mask {times['mask']:.1f} ms"


ITEMS: dict[str, tuple[Callable[[dict[str, int]], str], int]] = {  # with its limit in seconds
    "pytest": (pytest_gpu, 120),
    "quickstart": (quickstart, 240),
    "decode": (decode, 60),
    "train": (train, 60),
    "nccl": (nccl, 60),
    "cuda-ipc": (cuda_ipc, 60),
    "vllm-sleep": (vllm_sleep, 180),
    "colocate": (colocate, 180),
    "flex-attention": (flex_attention, 120),
}


def main() -> int:
    """Print the table; 0, whatever the items found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", nargs="*", metavar="ITEM", help=f"of {', '.join(ITEMS)}; all")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the script")
    parser.add_argument("--one", choices=ITEMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = [name for name in given.items if name not in ITEMS]
    if unknown:
        parser.error(f"there is no item {unknown[0]!r}; use some of {', '.join(ITEMS)}")
    if given.one:
        return _run_here(given.one, SMALL if given.small else SIZES)
    print("| item | result | number |\n|---|---|---|", flush=True)
    for name in given.items or ITEMS:
        result, number = _run_apart(name, is_small=given.small)
        print(f"| {ITEMS[name][0].__doc__} | {result} | {number} |", flush=True)
    print(f"\n{_device()}; {_versions()}")
    return 0


def _run_here(name: str, sizes: dict[str, int]) -> int:
    import torch

    try:
        if not torch.cuda.is_available():
            raise SkippedError(NO_GPU)
        result, number = "ok", ITEMS[name][0](sizes)
    except SkippedError as error:
        result, number = "not tried", str(error)
    except Exception as error:  # noqa: BLE001 -- of whatever the item is made of
        result, number = "FAILED", f"{type(error).__name__}: {error}"
    print(MARK + json.dumps([result, number]), flush=True)
    return 0


def _run_apart(name: str, *, is_small: bool) -> tuple[str, str]:
    """Return result and number of an item that ran in a process group of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", name]
    with subprocess.Popen(
        [*command, *(["--small"] if is_small else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        limit = ITEMS[name][1]
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            said = ""
            result = ("FAILED", f"not done after {limit} s")
        else:
            result = ("FAILED", f"exit code {process.returncode}: {_last_line(said)}")
        finally:
            with suppress(ProcessLookupError):  # what the item started ends with it
                os.killpg(process.pid, signal.SIGKILL)
    for line in said.splitlines():
        if line.startswith(MARK):
            found, number = json.loads(line.removeprefix(MARK))
            result = (found, " ".join(number.split()).replace("|", "/")[:200])
    return result


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["nothing was printed"])[-1][:160].replace("|", "/")


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"device: {NO_GPU} ({platform.machine()}, {platform.system()})"
    found = torch.cuda.get_device_properties(0)
    gpus = f"{torch.cuda.device_count()} x {found.name}"
    return f"device: {gpus}, {found.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"


def _versions() -> str:
    known = [f"python {platform.python_version()}"]
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            known.append(f"{package} {metadata.version(package)}")
    return ", ".join(known)


def _called(*arguments: object, folder: str) -> str:
    command = [sys.executable, *map(str, arguments)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(_last_line(ended.stdout + ended.stderr))
    return ended.stdout


def _model(sizes: dict[str, int]) -> str:
    from trinity_testing.tiny import make_tiny_model

    folder = Path(tempfile.mkdtemp(prefix="trinity-gpu-check-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(make_tiny_model(folder, architecture="qwen2", init_std=0.02, **sizes))


def _trainer(path: str, settings: dict[str, object]):  # noqa: ANN202 -- imported below
    from types import SimpleNamespace

    from trinity.common.config.algorithm import AlgorithmConfig
    from trinity.common.config.explorer import ExplorerConfig
    from trinity.common.config.model import ModelConfig
    from trinity.common.config.trainer import TrainerConfig
    from trinity.trainer.torch_trainer import TorchTrainer

    algorithm = {"algorithm_type": "grpo", "advantage_fn": "grpo", "policy_loss_fn": "ppo"}
    config = SimpleNamespace(
        audit="warn",
        algorithm=AlgorithmConfig(**algorithm, kl_loss_fn="none", entropy_loss_fn="none"),
        trainer=TrainerConfig(**settings),
        model=ModelConfig(),
        explorer=ExplorerConfig(),
        synchronizer=SimpleNamespace(sync_timeout=60.0),
    )
    return TorchTrainer(config, model_path=path, total_steps=100, seed=0)


def _rows(num: int, *, prompt: int, response: int, vocab: int):  # noqa: ANN202 -- as above
    import torch
    from trinity.common.experience import EID, Experience

    draw = torch.Generator().manual_seed(0)
    return [
        Experience(
            tokens=torch.randint(3, vocab, (prompt + response,), generator=draw),
            prompt_length=prompt,
            reward=float(number % 2),
            eid=EID(0, number // 4, number % 4),
            logprobs=[-8.0] * response,
            info={"model_version": 0},
        )
        for number in range(num)
    ]


if __name__ == "__main__":
    sys.exit(main())
