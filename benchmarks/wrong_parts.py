"""Run deliberately wrong parts through the conformance kit and a tiny run; say who finds them.

    python benchmarks/wrong_parts.py --audit warn --out wrong_parts.json

The parts: ``wrong_run_parts/parts``, written before the audit was designed;
``wrong_run_parts/second``, written from the pages of the kinds by somebody who had read neither the
audit nor the first; and the mistakes of the conformance kit's own tests. Each goes through the
checks of its kind, and through a run of 8 steps on a tiny model, each in a process of its own. The
table says whether the kit, the audit (with the check that found it) or another error of the run
found it, or nobody; and why a part that nobody finds is legal by its contract.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import runpy
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
OWN = REPOSITORY / "benchmarks/wrong_run_parts/parts"
OF_KIT = REPOSITORY / "packages/trinity-testing/tests/wrong_plugin"
SECOND = REPOSITORY / "benchmarks/wrong_run_parts/second"
#: name of each plugin, and its files
SETS = {"own": ("wrong-run", OWN), "second": ("wrong-again", SECOND), "kit": ("wrong", OF_KIT)}
LIMIT_S = 300
REWARD = """
from trinity.extend import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_reward_fns():
    return {"varied": "varied:Varied"}
"""
PLACES = {
    "workflow": "buffer.explorer_input.taskset.default_workflow_type",
    "reward_fn": "buffer.explorer_input.taskset.default_reward_fn_type",
    "task_selector": "buffer.explorer_input.taskset.task_selector.selector_type",
    "advantage_fn": "algorithm.advantage_fn",
    "policy_loss_fn": "algorithm.policy_loss_fn",
    "kl_fn": "algorithm.kl_loss_fn",
    "entropy_loss_fn": "algorithm.entropy_loss_fn",
    "sample_strategy": "algorithm.sample_strategy",
    "algorithm": "algorithm.algorithm_type",
    "storage": "buffer.trainer_input.experience_buffer.storage_type",
    "rollout_engine": "explorer.rollout_model.engine_type",
    "trainer": "trainer.trainer_type",
    "sync_method": "synchronizer.sync_method",
    "monitor": "monitor.monitor_type",
    "priority_fn": "buffer.trainer_input.experience_buffer.replay_buffer.priority_fn",
    "reply_parser": "explorer.rollout_model.tool_call_parser",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audit", default="warn", choices=["warn", "stop", "off", "absent"])
    parser.add_argument("--only", default="", help="part of a subject's name")
    parser.add_argument("--no-kit", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--right", action="store_true", help="run those that are right, too")
    parser.add_argument("--set", choices=[*SETS, "all"], default="all")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wrong-parts-") as name:
        folder = Path(name)
        subjects = prepare(folder, options)
        rows = []
        for (source, subject), mistake in subjects.items():
            row = judged(source, subject, folder=folder, options=options)
            rows.append({"subject": subject, "set": source, "mistake": mistake, **row})
            print(line_of(rows[-1]), flush=True)
    print(totals(rows))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


def prepare(folder: Path, options: argparse.Namespace) -> dict[tuple[str, str], str]:
    """Write the two plugins, a model and rows; return set and subject, and what is wrong."""
    from trinity_testing.fixtures import write_distribution
    from trinity_testing.tiny import make_tiny_model

    for source, (name, place) in SETS.items():
        first = f"{name.replace('-', '_')}_plugin.py"
        names = [first, *sorted(f.name for f in place.glob("wrong_*_*.py") if f.name != first)]
        files = {one: (place / one).read_text() for one in names}
        write_distribution(folder / source, name=name, files=files)
    rewards = {"varied_plugin.py": REWARD, "varied.py": (OWN / "wrong_run_rollouts.py").read_text()}
    for source in ("second", "kit"):
        write_distribution(folder / source, name="varied", files=rewards)
    make_tiny_model(folder / "model")
    lines = [json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(8)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    found = {("own", key): text for key, (_, text) in module_of(OWN, "wrong_run_plugin").items()}
    for key, (_, text) in module_of(SECOND, "wrong_again_plugin").items():
        found["second", key] = text
    for key, text in module_of(OF_KIT, "wrong_catalogue").items():
        found["kit", key] = text
    return {
        (source, key): text
        for (source, key), text in found.items()
        if (options.right or not text.lower().startswith("is right"))
        and options.only in key
        and options.set in {"all", source}
    }


def module_of(folder: Path, name: str) -> dict[str, Any]:
    """Return the parts that a plugin's list names."""
    module = runpy.run_path(str(folder / f"{name}.py"))
    if "all_parts" in module:
        return module["all_parts"]()
    return {
        wrong.subject: module["mistake_of"](wrong)
        for wrong in module["WRONG"]
        if wrong.subject.partition("/")[0] in {*PLACES, "experience_operator"}
        and not wrong.check.startswith(("component.", "conduct.ends", "ray."))
    }


def judged(source: str, subject: str, *, folder: Path, options: Any) -> dict[str, Any]:
    """Return what kit and run say of a part."""

    def install() -> None:
        sys.path.insert(0, str(folder / source))

    def checked() -> list[str]:
        install()
        return of_kit(subject, plugin=SETS[source][0])

    def ran_with() -> dict[str, Any]:
        install()
        return of_run(subject, folder=folder, audit=options.audit)

    kit = "" if options.no_kit else apart(checked)
    ran = {"error": "", "audit": []} if options.no_run else apart(ran_with)
    if isinstance(ran, str):
        ran = {"error": ran, "audit": []}
    return {"kit": kit if isinstance(kit, str) else " ".join(kit), **ran}


def apart(work: Any) -> Any:
    """Run a function in a separate process; return its result (json), or how it ended."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(LIMIT_S)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            told = work()
        except BaseException as error:  # noqa: BLE001 -- it is what the table tells
            told = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(told)[:60_000].encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else f"ended with status {status} and no word"


def of_kit(subject: str, *, plugin: str) -> list[str]:
    """Return the checks of the kit that find it."""
    from trinity.extend import PluginManager, set_manager
    from trinity_testing.planning import plan

    manager = PluginManager.discover(env={})
    set_manager(manager)
    kind = subject.partition("/")[0]
    cases = plan(plugin, manager, ids=[kind, "component", "conduct"], limit_s=20.0)
    results = [case.run() for case in cases if case.component == subject]
    return [one.id for one in results if one.status in {"FAIL", "ERROR"}]


def of_run(subject: str, *, folder: Path, audit: str) -> dict[str, Any]:
    """Return how a run with the part ended, and what its audit found."""
    import trinity
    from trinity.common.config import Config
    from trinity.extend import PluginManager, get_manager, set_manager

    logging.disable(logging.CRITICAL)
    set_manager(PluginManager.discover(env={}))
    with tempfile.TemporaryDirectory(prefix="wrong-run-") as name:
        settings = settings_of(subject, folder=folder, directory=Path(name))
        names = get_manager().names("advisor")
        settings["advisors"] = dict.fromkeys(names, "off")  # each installed one is asked
        if subject.startswith("advisor/"):
            settings["advisors"][subject.partition("/")[2]] = "warn"
        if audit != "absent":
            settings["audit"] = audit
        error, began = "", time.perf_counter()
        try:
            trinity.run(Config.model_validate(settings), local=True)
        except BaseException as failed:  # noqa: BLE001 -- also the part's own
            error = f"{type(failed).__name__}: {failed}"
        seconds = time.perf_counter() - began
        told = {}
        for path in Path(name).glob("*/*/run.json"):
            told = json.loads(path.read_text())
        return {"error": error, "audit": told.get("audit", []), "seconds": seconds}


def settings_of(subject: str, *, folder: Path, directory: Path) -> dict[str, Any]:
    """Return the configuration of a run with the part."""
    taskset = {
        "name": "rows",
        "path": str(folder / "rows.jsonl"),
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "simple_workflow",
        "default_reward_fn_type": "varied",
    }
    settings: dict[str, Any] = {
        "project": "audit",
        "name": "wrong",
        "checkpoint_root_dir": str(directory),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "optimizer": {"lr": 1e-3}},
        "model": {
            "model_path": str(folder / "model"),
            "max_model_len": 96,
            "max_response_tokens": 8,
        },
        "buffer": {
            "batch_size": 4,
            "total_epochs": 4,
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {
            "eval_on_startup": False,
            "max_timeout": 20,
            "rollout_model": {"engine_num": 2},
        },
        "monitor": {"monitor_type": "jsonl"},
    }
    kind, _, name = subject.partition("/")
    if kind == "trainer":
        settings["algorithm"]["kl_loss_fn"] = "none"  # no plugin claims to have a reference
    if kind == "experience_operator":
        settings["data_processor"] = {"experience_pipeline": {"operators": [{"name": name}]}}
        return settings
    if kind == "advisor":
        return settings  # of_run switches it on
    *path, last = PLACES[kind].split(".")
    place = settings
    for key in path:
        place = place.setdefault(key, {})
    place[last] = name
    if kind == "storage":
        place["name"] = "experiences"
    if kind == "priority_fn":
        place["enable"] = True
    return settings


def verdict_of(row: dict[str, Any]) -> str:
    """Return who found it, in a few words."""
    if row["kit"]:
        return "kit and audit" if row["audit"] else "kit"
    if row["audit"]:
        return "audit"
    if row["error"].startswith("ConfigError"):
        return "not run"  # it wants settings that the table does not give it
    if row["error"]:
        return "error of the run"
    return "legal" if row["subject"] in legal() else "nobody"


def legal() -> dict[str, str]:
    """Return why a part that nobody finds may do what it does."""
    return runpy.run_path(str(OWN.parent / "legal.py"))["LEGAL"]


def line_of(row: dict[str, Any]) -> str:
    """Return a line of the table."""
    checks = ",".join(one["check"] for one in row["audit"])
    error = " ".join(row["error"].split())[:90]
    return (
        f"{row['subject']:45} {verdict_of(row):16} kit[{row['kit'][:60]}] audit[{checks}] {error}"
    )


def totals(rows: list[dict[str, Any]]) -> str:
    """Return how many were found, and by whom."""
    lines = [f"\n{len(rows)} wrong parts"]
    for source in SETS:
        part = [row for row in rows if row["set"] == source]
        counts = Counter(verdict_of(row) for row in part)
        in_run = sum(bool(row["audit"] or has_failed(row)) for row in part)
        lines.append(f"{source}: {len(part)} parts, found in the run {in_run}; {dict(counts)}")
    silent = sum(not row["audit"] and not row["error"] for row in rows)
    found = sum(verdict_of(row) not in {"nobody", "legal", "not run"} for row in rows)
    lines.append(f"found by kit or run: {found}; run to the end unsaid: {silent}")
    return "\n".join(lines)


def has_failed(row: dict[str, Any]) -> bool:
    """Return whether the run started and ended by an error."""
    return bool(row["error"]) and not row["error"].startswith("ConfigError")


if __name__ == "__main__":
    main()
