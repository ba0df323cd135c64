"""Make a page for each algorithm, one for all parts, and the table of both.

From the code: names, papers, parts, arguments with defaults, what a run lacks. From files,
``reference/algorithms/*.in.*``: formulas, when to take it, an example.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from docstrings import (
    PAPER,
    SENTENCE,
    argument_comments,
    argument_table,
    docstring,
    linked,
    prose,
    spaced,
)
from trinity.common.config import Config, Machine, check, resolve
from trinity.common.config.resolve_algorithm import ALGORITHM_PARTS
from trinity.extend import PluginManager
from trinity_testing.learning.toy_run import schema_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.extend import Component

FOLDER = Path(__file__).resolve().parent / "reference" / "algorithms"
OURS = {"trinity-core", "trinity-algorithms", "trinity-algo-opmd"}  # what is documented here
PART_TITLES = {
    "advantage_fn": "Advantage",
    "policy_loss_fn": "Loss",
    "kl_loss_fn": "KL loss",
    "kl_penalty_fn": "KL penalty on rewards",
    "entropy_loss_fn": "Entropy",
    "sample_strategy": "Sample strategy",
}
KIND_TITLES = {
    "advantage_fn": "Advantages",
    "policy_loss_fn": "Losses",
    "kl_fn": "KL functions",
    "entropy_loss_fn": "Entropy losses",
    "sample_strategy": "Sample strategies",
}
UNMET = re.compile(r"needs '(\w+)'(.*?), which no component of the run provides")

MODEL = """\
model:
  model_path: Qwen/Qwen2.5-0.5B-Instruct
  max_model_len: 2048
"""
TASKS = """\
buffer:
  batch_size: 32                 # tasks a step
  total_steps: 100
  explorer_input:
    taskset:
      path: tasks.jsonl          # {"question": ..., "answer": ...}
      format: {prompt_key: question, response_key: answer}
      default_workflow_type: math_workflow
"""
EXPERT = """\
  trainer_input:
    auxiliary_buffers:
      sft_dataset:
        storage_type: file
        path: expert.jsonl       # {"messages": [...]}
        format: {messages_key: messages}
"""
ROWS = """\
buffer:
  train_batch_size: 32
  total_steps: 100
  trainer_input:
    experience_buffer:
      storage_type: file
      path: rows.jsonl           # ROW
      format: {FORMAT}
"""
ROW_FORMS = {  # schema -> a row of the file, what `format` says of it
    "sft": ('{"messages": [...]}', "messages_key: messages"),
    "dpo": (
        '{"prompt": ..., "chosen": ..., "rejected": ...}',
        "prompt_type: plaintext",
    ),
    "cpt": ('{"text": ...}', "prompt_type: plaintext, prompt_key: text"),
}


@cache
def manager() -> PluginManager:
    """Return the plugins that are installed, without what the environment adds."""
    return PluginManager.discover(env={})


@cache
def written(name: str) -> dict[str, Any]:  # Any: what TOML holds
    """Return one of the hand-written files."""
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def algorithms() -> list[str]:
    """Return the algorithm types that have a page."""
    return [component.name for component in components("algorithm")]


def components(kind: str) -> list[Component]:
    """Return the documented components of a kind, by name, each once."""
    found = (manager().find(kind, name) for name in manager().names(kind))
    ours = {one.name: one for one in found if one.origin.distribution in OURS}
    return list(ours.values())


def index_page() -> str:
    """Return the table of all algorithms."""
    rows = [
        "| algorithm | paper | advantage | loss | KL loss | entropy | sample strategy "
        "| runs today |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for component in components("algorithm"):
        algorithm = resolved(component.name).algorithm
        names = (
            getattr(algorithm, part) or "none" for part in PART_TITLES if part != "kl_penalty_fn"
        )
        cells = [
            f"[{component.name}]({component.name}.md)",
            ", ".join(map(linked, papers(component.name))),
            *(f"`{name}`" for name in names),
            today(component.name),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    text = (FOLDER / "index.in.md").read_text(encoding="utf-8")
    listed = ["```{toctree}", ":hidden:", "", "parts", *algorithms(), "```"]
    return (
        linked(text).replace("ALGORITHM_TABLE", "\n".join(rows)) + "\n" + "\n".join([*listed, ""])
    )


def parts_page() -> str:
    """Return the page of all parts."""
    lines = [(FOLDER / "parts.in.md").read_text(encoding="utf-8")]
    for kind, title in KIND_TITLES.items():
        lines.append(f"## {title}\n")
        for component in components(kind):
            lines.append(f"### {kind}: {component.name}\n")
            if component.spec.aliases:
                lines.append(f"Also `{'`, `'.join(component.spec.aliases)}`.\n")
            lines += part_text(component)
            if lacking := unmet(*run_with(component)):
                lines.append(f"No run can have it yet: it lacks {listed(lacking)}.\n")
            if differ := differences(component):
                lines += [*(f"* {line}" for line in differ), ""]
    return "\n".join(lines).rstrip() + "\n"


def algorithm_page(name: str) -> str:
    """Return the page of an algorithm."""
    component = manager().find("algorithm", name)
    lines = [f"# {name}\n", *prose(component.load()), facts(name)]
    for part, used in own_parts(name).items():
        lines += [f"## {PART_TITLES[part]}: {used.name}\n", *part_text(used)]
    lines += ["## When to take it\n", linked(written("algorithms.in.toml")[name]["when"].strip())]
    lines += ["\n## Example\n", f"```yaml\n{example(name)}```\n"]
    lines.append("`trinity config check FILE` says what is wrong with it before anything starts.\n")
    lines += [
        "## What differs from Trinity-RFT\n",
        *(f"* {line}" for line in differences(component)),
    ]
    for used in own_parts(name).values():
        lines += [f"* `{used.kind}: {used.name}`: {line}" for line in differences(used)]
    everywhere = "[What differs everywhere](index.md#what-differs-from-trinity-rft-everywhere)"
    lines.append(f"* {everywhere}.\n")
    if problems := unmet(name):
        lines += ["## What it cannot have yet\n", *(f"* {line}" for line in problems)]
    return "\n".join(lines).rstrip() + "\n"


def facts(name: str) -> str:
    """Return the short table of an algorithm."""
    algorithm, component = resolved(name).algorithm, manager().find("algorithm", name)
    rows = {
        "paper": ", ".join(map(linked, papers(name))) or "none",
        "runs today": today(name),
        "trains on": rows_of(name),
        "loads": ", ".join(["the policy", *extra_models(name)]),
        "comes from": f"`{component.origin.distribution}`",
        "`repeat_times`": f"{algorithm.repeat_times}",
    }
    for part in PART_TITLES:
        value = getattr(algorithm, part)
        rows[f"`{part}`"] = part_link(ALGORITHM_PARTS[part], value) if value else "none"
    return "\n".join(["| | |\n|---|---|", *(f"| {k} | {v} |" for k, v in rows.items()), ""])


def part_link(kind: str, name: str) -> str:
    """Return a link to what the page of all parts says of one."""
    return f"[`{name}`](parts.md#{kind}-{manager().find(kind, name).name})"


def rows_of(name: str) -> str:
    """Return where the rows come from that an algorithm trains on."""
    cls = manager().find("algorithm", name).load()
    if schema_name(cls.setting("schema")) != "experience":
        return "rows of a file (`mode: train`)"
    mixes = cls.default_config().get("sample_strategy") == "mix"
    return "what workflows make" + (", and an expert's rows" if mixes else "")


def extra_models(name: str) -> Iterator[str]:
    """Yield the models that an algorithm needs beside the policy."""
    cls, parts = manager().find("algorithm", name).load(), own_parts(name)
    if cls.setting("use_critic"):
        yield "a critic"
    if "ref_logprob" in parts["policy_loss_fn"].spec.needs:
        yield "a frozen reference model"
    elif {"kl_loss_fn", "kl_penalty_fn"} & parts.keys():
        yield "a frozen reference model (not where no KL function is named)"


def own_parts(name: str) -> dict[str, Component]:
    """Return the parts of an algorithm that do something, by their keys."""
    algorithm = resolved(name).algorithm
    names = {part: getattr(algorithm, part) for part in PART_TITLES}
    return {
        part: manager().find(ALGORITHM_PARTS[part], value)
        for part, value in names.items()
        if value not in {None, "none"}
    }


def part_text(component: Component) -> list[str]:
    """Return what a part does, its formula and its arguments."""
    text, cls = texts_of(component), component.load()
    lines = prose(cls)
    if computed_on := getattr(cls, "computed_on", ""):
        where = {
            "group": "Computed on the complete groups of a step, before they are stored.",
            "batch": "Computed by the trainer, on its batch.",
        }
        lines += [where[computed_on], ""]
    if "formula" in text:
        lines += [f"$$\n{text['formula'].strip()}\n$$\n"]
    if "legend" in text:
        lines += [text["legend"], ""]
    if lacking := sorted(component.spec.needs):
        lines += [f"Needs of the run: {', '.join(f'`{word}`' for word in lacking)}.", ""]
    return [*lines, *argument_table(cls)]


def differences(component: Component) -> list[str]:
    """Return the sentences on Trinity-RFT: of the docstring, of arguments, and written ones."""
    cls = component.load()
    found = [s for s in SENTENCE.split(spaced(docstring(cls))) if "Trinity-RFT" in s]
    for name, comment in argument_comments(cls).items():
        found += [f"`{name}`: {s}" for s in SENTENCE.split(comment) if "Trinity-RFT" in s]
    found += texts_of(component).get("differs", ())
    return [linked(sentence) for sentence in found]


def texts_of(component: Component) -> dict[str, Any]:  # Any: what TOML holds
    """Return what is written by hand about a component."""
    if component.kind == "algorithm":
        return written("algorithms.in.toml")[component.name]
    return written("parts.in.toml").get(component.kind, {}).get(component.name, {})


def papers(name: str) -> list[str]:
    """Return the arXiv numbers of an algorithm, else of its advantage, else of its loss."""
    parts = own_parts(name)
    named = [manager().find("algorithm", name)]
    named += [parts[part] for part in ("advantage_fn", "policy_loss_fn") if part in parts]
    texts = (docstring(base) for used in named for base in used.load().__mro__)
    found = (list(dict.fromkeys(PAPER.findall(text))) for text in texts)
    return next((numbers for numbers in found if numbers), [])


def today(name: str) -> str:
    """Return ``yes``, or what a run with the algorithm's own parts lacks."""
    return f"no: it lacks {listed(problems)}" if (problems := unmet(name)) else "yes"


def listed(problems: list[str]) -> str:
    """Return the words that nothing provides, with what they stand for."""
    words = [found.groups() for text in problems if (found := UNMET.search(text))]
    return ", ".join(f"`{word}`{meaning}" for word, meaning in words)


def run_with(component: Component) -> tuple[str, str, str]:
    """Return an algorithm that has the part, else GRPO with the part in the place of its own."""
    used = (name for name in algorithms() if component in own_parts(name).values())
    if name := next(used, ""):
        return name, "", ""
    key = next(key for key, kind in ALGORITHM_PARTS.items() if kind == component.kind)
    return "grpo", key, component.name


@cache
def unmet(name: str, key: str = "", part: str = "") -> list[str]:
    """Return what the check of a configuration says of needs that nothing provides."""
    problems = check(resolved(name, key, part), Machine(), manager=manager())
    return [problem.message for problem in problems if UNMET.search(problem.message)]


@cache
def resolved(name: str, key: str = "", part: str = "") -> Config:
    """Return the example, resolved with the algorithm's own parts, or one of another."""
    algorithm = {"algorithm_type": name} | ({key: part} if key else {})
    settings = yaml.safe_load(example(name)) | {"algorithm": algorithm}
    return resolve(Config.model_validate(settings), Machine(), manager=manager())


def example(name: str) -> str:
    """Return a whole configuration, as short as it can be."""
    text = written("algorithms.in.toml")[name]
    cls: Any = manager().find("algorithm", name).load()
    schema = schema_name(cls.setting("schema"))
    lines = [f"algorithm_type: {name}", *text["algorithm"].strip().splitlines()]
    algorithm = "algorithm:\n" + "".join(f"  {line}\n" for line in lines)
    more = text.get("more", "").lstrip("\n")
    if schema in ROW_FORMS:
        row, form = ROW_FORMS[schema]
        rows = ROWS.replace("ROW", row).replace("FORMAT", form)
        return f"mode: train\n{algorithm}{MODEL}{rows}{more}"
    tasks = TASKS.replace("math_workflow", text.get("workflow", "math_workflow"))
    wants_expert = cls.default_config().get("sample_strategy") == "mix"
    return f"{algorithm}{MODEL}{tasks}{EXPERT if wants_expert else ''}{more}"
