"""A train step of a model of Qwen2.5-0.5B's shape, beside TRL: seconds, CPU seconds, peak memory.

    python benchmarks/half_billion.py [--groups 4] [--prompts 256] [--precisions float32]
                                      [--turns 1] [--resume] [--trl-python PATH]
    python benchmarks/half_billion.py --table --resume --turns 5      all 18 cells
    python benchmarks/half_billion.py --shape 47m --sides trinity     a quick try, 1.3 GB

The weights are random; the vocabulary has 151,936 entries, the model 494 million parameters. Each
side runs the same GRPO steps in a separate process: one group of rollouts a step, 32 new tokens a
rollout, no KL term, AdamW. The sides take turns. A step is the time between two calls of the reward
function: one update and the rollouts after it. The first step creates the optimizer's states; it is
left out if there are others. CPU seconds are user and system time of the process; peak memory is
its largest resident size. A checkpoint has weights and optimizer states; with ``--resume`` a second
process goes on from it, and its CPU seconds until the first rewards are what a resume takes. A sync
is what the weights take to the engine (TRL samples with the trained model). Each turn is printed to
the error stream as soon as it ends, and for Trinity the recorded seconds of each part of a step.

    trinity    trinity run --local
    trl        GRPOTrainer without gradient checkpointing, which is its faster way; else as it comes

Each process takes about 10 GB, and its checkpoint 6 GB of the disk. TRL needs more than 23 GB for a
group of 4 with prompts of 1,024 tokens; with ``--trl-rows 1`` it takes a row at a time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import Process
from pathlib import Path
from statistics import median
from typing import Any

from against_trl import make_trl_python

HERE = Path(__file__).resolve().parent
NEW_TOKENS = 32
SIDES = ("trinity", "trl")
SHAPES = {  # of Qwen2.5's layers, with its vocabulary
    "494m": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "heads": 14},
    "47m": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8, "heads": 4},
}
WHOLE_TABLE = {"groups": [4, 8, 16], "prompts": [64, 256, 1024]}
COLUMNS = ("wall_s", "cpu_s", "startup_s", "checkpoint_s", "resume_s", "sync_s", "peak_gb")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took.

    Attributes:
        wall_s: seconds of a step.
        cpu_s: user and system seconds of a step.
        startup_s: CPU seconds until the first rewards.
        checkpoint_s: CPU seconds of a checkpoint; 0: none was written.
        resume_s: CPU seconds of a second process until its first rewards; 0: there was none.
        sync_s: CPU seconds of a sync; 0: weights go nowhere.
        peak_gb: of the process.
    """

    wall_s: float
    cpu_s: float
    startup_s: float
    checkpoint_s: float
    resume_s: float
    sync_s: float
    peak_gb: float


def main() -> None:
    """Measure each cell of the table, the sides in turns, and print it."""
    options = parse()
    python = str(options.trl_python or "")
    if "trl" in options.sides and not python:
        python = str(make_trl_python(options.out.resolve() / "trl-venv"))
    head = "| precision | group | prompt | side | s a step | CPU s a step | start-up | checkpoint "
    print(f"{head}| resume | sync | peak GB |")
    print("|---" * 11 + "|", flush=True)
    cells = itertools.product(options.precisions, options.groups, options.prompts)
    with tempfile.TemporaryDirectory(prefix="half-billion-") as name:
        shape = SHAPES[options.shape]  # of a model whose maker's memory ends with it
        maker = Process(target=make_model, args=(Path(name) / "model", shape))
        maker.start()
        maker.join()
        for precision, group, prompt in cells:
            cell = {"precision": precision, "group": group, "prompt": prompt}
            costs: dict[str, list[Cost]] = {side: [] for side in options.sides}
            for turn, side in itertools.product(range(options.turns), options.sides):
                folder = Path(name) / f"{side}-{precision}-{group}-{prompt}-{turn}"
                folder.mkdir()
                cost = cost_of(side, folder, cell, options=options, trl=python)
                print(f"{side} {cell}: {cost}{parts_of(folder)}", file=sys.stderr, flush=True)
                costs[side].append(cost)
                shutil.rmtree(folder)  # checkpoints
            print(*rows_of(cell, costs), sep="\n", flush=True)


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=_numbers, default=[4])
    parser.add_argument("--prompts", type=_numbers, default=[256])
    parser.add_argument("--precisions", type=_words, default=["float32"])
    parser.add_argument("--table", action="store_true", help="groups, prompts and precisions: all")
    parser.add_argument("--shape", choices=SHAPES, default="494m")
    parser.add_argument("--resume", action="store_true", help="measure a resume, too")
    parser.add_argument("--sides", type=_words, default=list(SIDES))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4, help="of each process, at least 2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl-rows", type=int, default=0, help="of its micro-batches; 0: a group")
    parser.add_argument("--trl-python", type=Path, help="an interpreter that has TRL")
    parser.add_argument("--out", type=Path, default=Path(), help="where TRL is installed")
    options = parser.parse_args()
    if options.table:
        options.groups, options.prompts = WHOLE_TABLE["groups"], WHOLE_TABLE["prompts"]
        options.precisions = ["float32", "bfloat16"]
    return options


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def make_model(folder: Path, shape: dict[str, int]) -> None:
    """Write a random model of a shape, 2 GB for 494m, with a tokenizer of bytes."""
    from transformers import AutoConfig, GenerationConfig
    from trinity_testing.tiny import make_tiny_tokenizer, write_random_model

    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=151936,
        num_attention_heads=shape["heads"],
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
        **{name: number for name, number in shape.items() if name != "heads"},
    )
    write_random_model(
        folder,
        config=config,
        tokenizer=make_tiny_tokenizer(vocab=151936),
        generation_config=GenerationConfig(eos_token_id=[2], pad_token_id=0),
        seed=0,
    )


def cost_of(
    side: str, folder: Path, cell: dict[str, Any], *, options: argparse.Namespace, trl: str
) -> Cost:
    """Return what the steps of one process took, and what one took that goes on from it."""
    question = "".join(chr(97 + (7 * n) % 26) for n in range(cell["prompt"] - 12))  # and a frame
    lines = [json.dumps({"question": question, "answer": str(n)}) for n in range(64)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    given = {**cell, "steps": options.steps, "threads": options.threads, "saves": options.resume}
    given |= {"model": str(folder.parent / "model"), "folder": str(folder)}
    given["rows"] = options.trl_rows or cell["group"]
    given |= {"new_tokens": NEW_TOKENS, "notes": str(folder / "notes.jsonl"), "resumes": False}
    (folder / "notes.jsonl").touch()
    command = [trl if side == "trl" else sys.executable]
    command.append(str(HERE / "half_billion_sides" / f"{side}_side.py"))
    rows, peak_gb = clocked(command, folder, given, name="clock")
    pairs = list(itertools.pairwise(rows))
    steps = pairs[1:] or pairs  # the first makes the optimizer's states
    resume_s = 0.0
    if options.resume:
        again = given | {"resumes": True, "steps": options.steps + 2}
        resume_s = clocked(command, folder, again, name="again")[0][0]["cpu_s"]
    notes = [json.loads(line) for line in (folder / "notes.jsonl").read_text().splitlines()]
    return Cost(
        wall_s=median(now["wall_s"] - before["wall_s"] for before, now in steps),
        cpu_s=median(now["cpu_s"] - before["cpu_s"] for before, now in steps),
        startup_s=rows[0]["cpu_s"],
        checkpoint_s=_noted(notes, "checkpoint"),
        resume_s=resume_s,
        sync_s=_noted(notes, "sync"),
        peak_gb=peak_gb,
    )


def clocked(
    command: list[str], folder: Path, given: dict[str, Any], *, name: str
) -> tuple[list[dict[str, float]], float]:
    """Run a side; return when each of its groups had its rewards, and its peak of memory."""
    clock, log = folder / f"{name}.jsonl", folder / "log"
    (folder / "given.json").write_text(json.dumps(given | {"clock": str(clock)}))
    inherited = dict(os.environ)  # noqa: TID251 -- what the sides inherit
    environment = inherited | {"OMP_NUM_THREADS": str(given["threads"])}
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, str(folder / "given.json")], stdout=out, stderr=out, env=environment,
            cwd=folder,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
    if status or not clock.exists():
        code = os.waitstatus_to_exitcode(status)
        said = "was killed, by want of memory perhaps" if code == -9 else f"ended with {code}"
        raise SystemExit(f"{command[-1]} {said}:\n{log.read_text()[-3000:]}")
    lines = clock.read_text().splitlines()[given["group"] - 1 :: given["group"]]
    return [json.loads(line) for line in lines], used.ru_maxrss / 1e6


def parts_of(folder: Path) -> str:
    """Return the median seconds of each part of a step that a run of Trinity has recorded."""
    found: dict[str, list[float]] = {}
    for file in folder.glob("half_billion/run/monitor/metrics.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            for name in (name for name in row if name.startswith("time/")):
                found.setdefault(name.removeprefix("time/"), []).append(row[name])
    parts = {name: median(seconds) for name, seconds in sorted(found.items())}
    return "".join(f"\n    {name} {seconds:.2f}" for name, seconds in parts.items())


def _noted(notes: list[dict[str, Any]], name: str) -> float:
    return median([note["cpu_s"] for note in notes if note["name"] == name] or [0.0])


def rows_of(cell: dict[str, Any], costs: dict[str, list[Cost]]) -> list[str]:
    """Return a line for each side, and the medians of the ratios of each turn."""
    head = f"| {cell['precision']} | {cell['group']} | {cell['prompt']} |"
    lines = []
    for side, found in costs.items():
        costs_of = [median(getattr(one, name) for one in found) for name in COLUMNS]
        shown = (f"{number:.1f}" if number else "-" for number in costs_of)
        lines.append(f"{head} {side} | {' | '.join(shown)} |")
    if set(costs) == set(SIDES):
        pairs = list(zip(costs["trinity"], costs["trl"], strict=True))
        ratios = []
        for name in COLUMNS:
            of_turns = [(getattr(ours, name), getattr(theirs, name)) for ours, theirs in pairs]
            both = all(ours and theirs for ours, theirs in of_turns)
            ratios.append(f"{median(a / b for a, b in of_turns):.2f}" if both else "-")
        lines.append(f"{head} ratio | {' | '.join(ratios)} |")
    return lines


if __name__ == "__main__":
    main()
