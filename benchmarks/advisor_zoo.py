"""How many sick runs do the advisors tell from healthy ones? Small runs, in this process's forks.

    python benchmarks/advisor_zoo.py run --half tuning --to FOLDER      resumes: what is there stays
    python benchmarks/advisor_zoo.py again --half tuning --to FOLDER    advisors of now, kept runs
    python benchmarks/advisor_zoo.py table --half held_out --to FOLDER  what the documentation has

The catalogue is split by the kind of pathology, and healthy runs by task and algorithm. Detectors
were written with the half ``tuning`` alone; what the half ``held_out`` gives was printed once.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor_zoo_catalogue import LR, TRAINER, WORKFLOW, Case, catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS, GROUP, TASKS, LIMIT_S = 26, 8, 4, 240.0

# --- one run


def settings_of(case: Case, folder: Path) -> dict[str, Any]:
    """Return the configuration of a run, whose files stand in the folder of all."""
    taskset = {
        "name": "train",
        "path": str(folder / "train.jsonl"),
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "simple_workflow",
        "default_reward_fn_type": "zoo_share",
    }
    settings: dict[str, Any] = {
        "project": "zoo",
        "name": directory_of(case),
        "checkpoint_root_dir": str(folder / "runs"),
        "algorithm": {
            "algorithm_type": "grpo", "repeat_times": GROUP,
            "optimizer": {"lr": LR, "weight_decay": 0.0},
        },
        "model": {
            "model_path": str(folder / "model"), "max_model_len": 120, "max_response_tokens": 16,
        },
        "buffer": {
            "batch_size": TASKS, "train_batch_size": TASKS * GROUP, "total_steps": STEPS,
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {"eval_interval": 5, "eval_on_startup": True},
        "trainer": {"save_interval": 0},
        "monitor": {"monitor_type": "jsonl"},
    }  # fmt: skip
    own = copy.deepcopy(case.settings)
    rows = {"all": "train.jsonl", "half": "half.jsonl"}.get(own.pop("EVAL_ROWS", ""), "held.jsonl")
    of_evaluation = own.pop("EVAL", {})
    own.pop(TRAINER, None)
    for path, value in own.items():
        _put(settings, path, value)
    held = copy.deepcopy(taskset) | {"name": "held_out", "path": str(folder / rows)}
    held["repeat_times"] = 2
    for path, value in of_evaluation.items():
        held[path.rpartition(".")[2]] = value
    settings["buffer"]["explorer_input"]["eval_tasksets"] = [held]
    if settings["buffer"]["explorer_input"]["taskset"].get("workflow_args"):
        held.pop("workflow_args", None)
    if case.settings.get(WORKFLOW) == "zoo_two_turns":
        settings["buffer"]["train_batch_size"] *= 2
    return settings


def _put(settings: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for one in sections:
        settings = settings.setdefault(one, {})
    settings[key] = value


def write_inputs(folder: Path) -> None:
    """Write the model and the rows that all runs share."""
    from trinity_testing.tiny import make_tiny_model

    if (folder / "model").exists() and (folder / "held.jsonl").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    make_tiny_model(folder / "model", vocab=259, hidden=16, heads=2, layers=1, init_std=0.1, seed=0)
    teach_to_end(folder / "model")
    train = [_row(2 * number) for number in range(TASKS * STEPS)]
    others = [_row(number) for number in range(1, 2 * TASKS * STEPS, 18)][:12]
    half = [*others[:6], *train[:6]]
    for name, rows in (("train", train), ("half", half), ("held", others)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def teach_to_end(model: Path) -> None:
    """Train the random model on random replies that end after three to nine tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, chance = AutoTokenizer.from_pretrained(model), torch.Generator().manual_seed(0)
    network = AutoModelForCausalLM.from_pretrained(model)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "say it 7"}], tokenize=False, add_generation_prompt=True
    )
    prompt = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    bytes_ = torch.tensor(
        [i for i in range(259) if i not in set(tokenizer.all_special_ids)], dtype=torch.long
    )
    for _ in range(300):
        loss = torch.zeros(())
        for _ in range(8):
            size = int(torch.randint(3, 10, (1,), generator=chance))
            reply = bytes_[torch.randint(len(bytes_), (size,), generator=chance)]
            ids = torch.cat([prompt, reply, torch.tensor([tokenizer.eos_token_id])])
            labels = ids.clone()
            labels[: len(prompt)] = -100
            loss = loss + network(input_ids=ids[None], labels=labels[None]).loss / 8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.save_pretrained(model)


def _row(number: int) -> dict[str, str]:
    return {"question": f"say it {number}", "answer": "x"}


def directory_of(case: Case) -> str:
    """Return the name of the run directory of a case."""
    return case.name.replace(" ", "_")


def run_one(case: Case, folder: Path) -> dict[str, Any]:
    """Run a case in a fork; return its line of the results."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_in_fork, args=(case, folder))
    began = time.perf_counter()
    process.start()
    process.join(LIMIT_S)
    if process.is_alive():
        process.kill()
        process.join()
    directory = folder / "runs" / "zoo" / directory_of(case)
    return line_of(case, directory) | {"seconds": round(time.perf_counter() - began, 1)}


def _in_fork(case: Case, folder: Path) -> None:
    from advisor_zoo_new_parts import TRAINERS as NEW_TRAINERS
    from advisor_zoo_parts import TRAINERS
    from trinity.common.config import Config
    from trinity.runtime import stage_record
    from trinity.runtime.run import run
    from trinity.trainer.torch_trainer import TorchTrainer

    stage_record.plots_of = lambda *_, **__: ()  # takes as long as the run
    wrong = (TRAINERS | NEW_TRAINERS).get(case.settings.get(TRAINER, ""))
    if wrong is not None:
        TorchTrainer.train_step = wrong(TorchTrainer.train_step)
    log = (folder / "logs" / f"{case.name}.txt").open("w")
    sys.stdout = sys.stderr = log
    try:
        run(Config.model_validate(settings_of(case, folder)), local=True)
    except BaseException:  # of a sick run it is a result
        traceback.print_exc(file=log)
        raise
    finally:
        log.flush()


def line_of(case: Case, directory: Path) -> dict[str, Any]:
    """Return what a run directory says of its case."""
    try:
        status = json.loads((directory / "run.json").read_text())
    except (OSError, ValueError):
        status = {"status": "did not begin"}
    return {
        "name": case.name, "kind": case.kind, "half": case.half, "is_sick": case.is_sick,
        "expects": list(case.expects), "status": status["status"],
        "steps": status.get("train_steps", 0), "error": str(status.get("error", ""))[:200],
        "findings": [
            {"advisor": one["advisor"], "step": one["step"], "message": one["message"]}
            for one in status.get("findings", [])
        ],
    }  # fmt: skip


def import_what_is_needed(model: Path | None = None) -> None:
    """Import once what each fork needs."""
    import advisor_zoo_new_parts  # noqa: F401 -- registers them, and those of the other file
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401
    import trinity.runtime.build  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trinity.extend import get_manager

    get_manager().digest()
    if model is not None:
        AutoTokenizer.from_pretrained(model)
        AutoModelForCausalLM.from_pretrained(model)


# --- commands


def run_all(half: str, folder: Path, *, only: str = "") -> None:
    """Run what has no line yet."""
    write_inputs(folder)
    import_what_is_needed(folder / "model")
    (folder / "logs").mkdir(exist_ok=True)
    results = folder / "results.jsonl"
    done = {row["name"] for row in read_results(results)}
    for case in catalogue():
        if case.half != half or case.name in done or only not in case.name:
            continue
        shutil.rmtree(folder / "runs" / "zoo" / directory_of(case), ignore_errors=True)
        row = run_one(case, folder)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        said = ", ".join(f"{one['advisor']}@{one['step']}" for one in row["findings"])
        print(
            f"{row['seconds']:6.1f} s  {case.name}: {row['status']} {row['steps']}  {said}",
            flush=True,
        )


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return the lines, the newest of each name."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return list({row["name"]: row for row in rows}.values())


def wilson(count: int, total: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % interval of a rate (Wilson 1927).

    >>> [round(one, 3) for one in wilson(8, 10)]
    [0.49, 0.943]
    """
    if not total:
        return 0.0, 1.0
    rate = count / total
    middle = (rate + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    half /= 1 + z * z / total
    return max(0.0, middle - half), min(1.0, middle + half)


def again(half: str, folder: Path, *, only: str = "") -> None:
    """Let the advisors of now read the runs that are kept, and write ``again.jsonl``.

    What they find is what they would have found in the run: each gets the same rows in order.
    """
    from trinity.extend import get_manager

    import_what_is_needed()
    components = list(get_manager().components("advisor"))
    results = folder / "results.jsonl"
    kept = read_results(results)
    cases = {case.name: case for case in catalogue()}
    for row in kept:
        if row["half"] == half and only in row["name"]:
            case = cases[row["name"]]
            row |= {"expects": list(case.expects)}
            row["findings"] = found_again(case, folder, components)
    (folder / "again.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    show(half, kept)


def found_again(case: Case, folder: Path, components: Iterable[Any]) -> list[dict[str, Any]]:
    """Return what the advisors find in the directory of a run."""
    from trinity.common.config import Config
    from trinity.common.ports import Observation
    from trinity.extend import KINDS
    from trinity.runtime.record.sample_files import places_of, read_step
    from trinity.runtime.record.shown_samples import as_advisors_get_them

    directory = folder / "runs" / "zoo" / directory_of(case)
    config = Config.model_validate(settings_of(case, folder)).check_and_update()
    places = {place.head.step: place for place in places_of(directory)}
    advisors = {
        one.name: KINDS["advisor"].made(one.load(), {}, config=config) for one in components
    }
    found = []
    for line in (directory / "monitor" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        role, step = row.pop("role"), row.pop("step")
        metrics = {k: math.nan if v is None else v for k, v in row.items()}
        place = places.get(step) if role == "trainer" else None

        def samples(place: Any = place) -> Any:
            return as_advisors_get_them(read_step(place)) if place is not None else ()

        seen = Observation(role=role, step=step, metrics=metrics, samples=samples)
        for name in list(advisors):
            advice = advisors[name].observe(seen)
            if advice is not None:
                del advisors[name]
                found.append({"advisor": name, "step": step, "message": advice.seen})
    return found


def show(half: str, rows: Iterable[dict[str, Any]]) -> None:
    """Print each run's findings, and the rates of a half."""
    own = [row for row in rows if row["half"] == half]
    for row in own:
        if row["is_sick"] or row["findings"]:
            said = ", ".join(f"{one['advisor']} {one['step']}" for one in row["findings"])
            kind = "sick" if row["is_sick"] else "healthy"
            print(f"| {row['name']} | {kind} | {'yes' if _named(row) else 'no'} | {said} |")
    sick, well = [r for r in own if r["is_sick"]], [r for r in own if not r["is_sick"]]
    steps = sorted(min(one["step"] for one in row["findings"]) for row in sick if row["findings"])
    print(f"detected: {_rate(sum(bool(r['findings']) for r in sick), len(sick))}")
    print(f"by an advisor that names the cause: {_rate(sum(map(_named, sick)), len(sick))}")
    if steps:
        print(f"steps until detection: median {steps[len(steps) // 2]}, most {steps[-1]}")
    failed = [r["name"] for r in sick if not r["findings"] and r["status"] == "failed"]
    print(f"not found, but ended with an error: {', '.join(failed) or 'none'}")
    print(f"healthy runs alarmed: {_rate(sum(bool(r['findings']) for r in well), len(well))}")
    print(f"alarms in all of them: {sum(len(r['findings']) for r in well)}")


def _named(row: dict[str, Any]) -> bool:
    return any(one["advisor"] in row["expects"] for one in row["findings"])


def _rate(count: int, total: int) -> str:
    low, high = wilson(count, total)
    rate = count / max(total, 1)
    return f"{count} of {total} ({rate:.0%}, 95 % interval {low:.0%} to {high:.0%})"


def main() -> None:
    """Run a command of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "again", "table", "list"))
    parser.add_argument(
        "--half", choices=("tuning", "held_out", "third", "new_kinds"), default="tuning"
    )
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if given.command == "list":
        for case in catalogue():
            print(case.half, case.name, "sick" if case.is_sick else "healthy")
        return
    if given.command == "table":
        show(given.half, read_results(given.to / "results.jsonl"))
        return
    command = run_all if given.command == "run" else again
    command(given.half, given.to, only=given.only)


if __name__ == "__main__":
    main()
