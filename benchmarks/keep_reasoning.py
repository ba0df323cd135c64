"""Train a tiny model that thinks, in chats whose template drops earlier reasoning: drop or keep.

    python benchmarks/keep_reasoning.py [--seeds 0 1 2 3] [--steps 30]

A chat has three turns: `1 + 3`, then `+ 2`, then `+ 2`. A reply is `<think> 4 + 2 </think> 6`. The
client sends back what it was given as content, `6`; the template drops the rest. The reward is the
part of the three answers that are right. Each seed is one model, shown the right form with answers
of which 40 % are right and the others one or two away, and trained twice: with `keep_reasoning:
false`, where each reply is an experience, and with `true`, where the chat is one. Both are then
evaluated both ways on held-out chats.

The last table has means over the seeds, the difference of the pairs, and its 95 % interval (t).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trinity.common.rows import write_rows
from trinity_testing.small_model import END, PAD, ROLES, chat_tokenizer, make_small_model

TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message.role + '|>' -}}"
    "{{- message.content if loop.last else message.content.split('</think>')[-1] -}}"
    "{{- '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
LARGEST, TURNS, NUM_HELD_OUT, MAX_ERROR, UNKNOWN = 4, 3, 30, 2, "<|unknown|>"
SHARE_RIGHT, PASSES = 0.4, 20  # of the demonstrations
WAYS = {"false": "dropped", "true": "kept"}
AGENT = """
def solve(task, client):
    messages, right = [], 0
    for question, answer in zip(task["questions"], task["answers"]):
        messages.append({"role": "user", "content": question})
        reply = client.chat.completions.create(model=client.model_path, messages=messages)
        content = reply.choices[0].message.content or ""
        right += content.strip() == answer
        messages.append({"role": "assistant", "content": content})
    return right / len(task["answers"])
"""
T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # by seeds


def main() -> None:
    """Print a row for each run, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    print("| seed | trained | evaluated as trained, by step | dropped | kept | CPU s |")
    print("|---|---|---|---|---|---|")
    for seed in options.seeds:
        for way, label in WAYS.items():
            one, curve = trained(seed, way, steps=options.steps)
            found[way].append(one)
            numbers = f"{one['dropped']:.3f} | {one['kept']:.3f} | {one['cpu']:.0f}"
            print(f"| {seed} | {label} | {curve} | {numbers} |", flush=True)
    print("\n| evaluated | trained dropped | trained kept | kept less dropped |")
    print("|---|---|---|---|")
    for measure in ("dropped", "kept", "as trained, all steps", "cpu"):
        print(row(measure, found))


def row(measure: str, found: dict[str, list[dict[str, float]]]) -> str:
    """Return a row of the last table."""
    drop, keep = ([one[measure] for one in found[way]] for way in WAYS)
    pairs = [late - early for early, late in zip(drop, keep, strict=True)]
    half = ""
    if len(pairs) in T_95:
        half = f" ± {T_95[len(pairs)] * statistics.stdev(pairs) / len(pairs) ** 0.5:.3f}"
    mean = statistics.mean
    return f"| {measure} | {mean(drop):.3f} | {mean(keep):.3f} | {mean(pairs):+.3f}{half} |"


def trained(seed: int, way: str, *, steps: int) -> tuple[dict[str, float], str]:
    """Train a model; return its rewards, and the curve of those as it was trained."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder, seed=seed)
        config = folder / "run.json"  # which is YAML
        config.write_text(json.dumps(configuration(seed, way, steps=steps)))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        trinity(folder, config)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        curve = rewards(folder, stage="rl")
        model = sorted(folder.glob("checkpoints/**/rl/**/config.json"))[-1].parent
        final = {}
        for other, label in WAYS.items():
            bench = configuration(seed, other, steps=steps, bench=str(model))
            config.write_text(json.dumps(bench))
            trinity(folder, config)
            (final[label],) = rewards(folder, stage=f"bench_{other}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    whole = {"cpu": spent, "as trained, all steps": statistics.mean(curve)}
    return final | whole, " ".join(f"{one:.2f}" for one in curve)


def configuration(seed: int, way: str, *, steps: int, bench: str = "") -> dict[str, Any]:
    """Return the configuration of a run, or of an evaluation of a model."""
    tasks = {"default_workflow_type": "agent_workflow", "workflow_args": {"agent": "chat:solve"}}
    demonstrations = {
        "name": "demonstrations",
        "storage_type": "file",
        "path": "sft.jsonl",
        "format": {"prompt_type": "messages", "messages_key": "messages"},
    }
    first = {
        "stage_name": "sft",
        "mode": "train",
        "algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 3e-3}},
        "buffer": {
            "train_batch_size": 32,
            "total_epochs": 1,
            "trainer_input": {"experience_buffer": demonstrations},
        },
    }
    config: dict[str, Any] = {
        "project": "keep",
        "name": "run",
        "checkpoint_root_dir": "checkpoints",
        "seed": seed,
        "algorithm": {
            "algorithm_type": "multi_step_grpo",
            "repeat_times": 8,
            "kl_loss_fn": "none",
            "entropy_loss_fn_args": {"entropy_coef": 0.01},
            "optimizer": {"lr": 3e-4},
        },
        "model": {"model_path": bench or "model", "max_model_len": 64, "max_response_tokens": 8},
        "buffer": {
            "batch_size": 8,
            "total_steps": steps,
            "explorer_input": {
                "taskset": {"name": "train", "path": "train.jsonl", **tasks},
                "eval_tasksets": [
                    {"name": "held_out", "path": "test.jsonl", "repeat_times": 4, **tasks}
                ],
            },
        },
        "explorer": {
            "eval_interval": max(1, steps // 3),
            "rollout_model": {"keep_reasoning": way == "true"},
        },
        "synchronizer": {"sync_method": "memory"},
        "monitor": {"monitor_type": "jsonl"},
    }
    if bench:
        return config | {"mode": "bench", "name": f"bench_{way}"}
    return config | {"stages": [first, {"stage_name": "rl"}]}


def write_task(folder: Path, *, seed: int) -> None:
    """Write the model, demonstrations of single replies, and chats."""
    rng = random.Random(seed)
    digits = [(a, b, c, d) for a in range(LARGEST) for b in range(LARGEST) for c in range(LARGEST)
              for d in (0, 1, 2)]  # fmt: skip
    rng.shuffle(digits)
    chats = [chat_of(one) for one in digits]
    write_rows(folder / "test.jsonl", chats[:NUM_HELD_OUT])
    write_rows(folder / "train.jsonl", chats[NUM_HELD_OUT:])
    shown = [demonstration(chat, rng=rng) for chat in chats[NUM_HELD_OUT:] * PASSES]
    write_rows(folder / "sft.jsonl", shown)
    (folder / "chat.py").write_text(AGENT)
    make_small_model(
        folder / "model", tokenizer=tokenizer(), hidden=64, layers=2, max_positions=64, seed=seed
    )


def chat_of(digits: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return the questions of a chat, and the running sum that answers each."""
    a, b, c, d = digits
    return {
        "questions": [f"{a} + {b}", f"+ {c}", f"+ {d}"],
        "answers": [str(a + b), str(a + b + c), str(a + b + c + d)],
    }


def demonstration(chat: dict[str, Any], *, rng: random.Random) -> dict[str, Any]:
    """Return a chat up to a reply of the right form, whose answer is up to two away."""
    last = rng.randrange(TURNS)
    messages = []
    for turn in range(last + 1):
        messages.append({"role": "user", "content": chat["questions"][turn]})
        answer = chat["answers"][turn]
        if turn == last:
            sum_of = chat["questions"][0]
            if turn:
                sum_of = f"{chat['answers'][turn - 1]} {chat['questions'][turn]}"
            guess = int(answer)
            if rng.random() > SHARE_RIGHT:
                guess = max(0, guess + rng.choice((-MAX_ERROR, -1, 1, MAX_ERROR)))
            answer = f"<think> {sum_of} </think> {guess}"
        messages.append({"role": "assistant", "content": answer})
    return {"messages": messages}


def tokenizer() -> Any:
    """Return a tokenizer whose tokens are numbers and the marks of a reasoning."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = [str(number) for number in range(3 * LARGEST + MAX_ERROR)]
    words = [PAD, UNKNOWN, END, *ROLES, "+", "<think>", "</think>", *numbers]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = chat_tokenizer(core, unknown=UNKNOWN)
    made.chat_template = TEMPLATE
    return made


def trinity(folder: Path, config: Path) -> None:
    """Run a configuration; say what it printed if it fails."""
    command = [sys.executable, "-m", "trinity", "run", "--local", "--config", str(config)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # noqa: TID251 -- handed to another process
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])


def rewards(folder: Path, *, stage: str) -> list[float]:
    """Return the rewards of the held-out chats, evaluation by evaluation."""
    (file,) = folder.glob(f"checkpoints/**/{stage}/**/metrics.jsonl")
    lines = [json.loads(line) for line in file.open()]
    names = [f"{kind}/held_out/reward/mean@4" for kind in ("eval", "bench")]
    return [line[name] for line in lines for name in names if name in line]


if __name__ == "__main__":
    main()
