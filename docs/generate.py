"""Write the reference pages from the code: ``python docs/generate.py``.

The pages of ``docs/reference/`` are made here and kept in the repository, so that they can be read
and reviewed without a build. A test compares them. Each starts with what stands beside it in
``NAME.in.md``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import typing
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import PydanticUndefined
from trinity.common.config import Config
from trinity.common.config.base import StrictModel
from trinity.extend import KINDS, PLUGIN_API
from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import TrinityHooks
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic.fields import FieldInfo
    from trinity.extend import Kind

REFERENCE = Path(__file__).resolve().parent / "reference"
MISTAKES = REFERENCE.parents[1] / "packages/trinity-testing/tests/wrong_plugin"
sys.path.append(str(REFERENCE.parent))  # a test loads this file from elsewhere
algorithm_pages = importlib.import_module("algorithm_pages")
part_pages = importlib.import_module("part_pages")
promise_page = importlib.import_module("promise_page")
HEADER = (
    "<!-- Written by docs/generate.py from the code. Change the code, then run: nox -s docs -->\n\n"
)


def main() -> None:
    """Write all pages."""
    for name, render in PAGES.items():
        (REFERENCE / name).write_text(render(), encoding="utf-8")
        print(f"wrote docs/reference/{name}")


def hooks_page() -> str:
    """Return the page of the hooks, each under a heading that spells its arguments."""
    hooks = [h for name, h in vars(TrinityHooks).items() if name.startswith("trinity_")]
    kinds = {kind.hook: kind for kind in KINDS.values()}
    start = introduction("hooks.in.md").replace("API_VERSION", str(PLUGIN_API))
    parts = [start.replace("SPEC_TABLE", spec_table())]
    parts.append("## Hooks that bring components\n")
    parts += [
        hook_entry(hook, kind=kinds[hook.__name__]) for hook in hooks if hook.__name__ in kinds
    ]
    parts.append("## Other hooks\n")
    parts += [hook_entry(hook) for hook in hooks if hook.__name__ not in kinds]
    return "\n".join(parts)


def hook_entry(hook: Callable[..., object], *, kind: Kind | None = None) -> str:
    """Return the heading and the text of one hook; ``kind`` is what it gives."""
    arguments = [name for name in inspect.signature(hook).parameters if name != "self"]
    text = part_pages.plain(inspect.getdoc(hook) or "")
    lines = [f"### {hook.__name__}({', '.join(arguments)})\n", text, ""]
    return "\n".join([*lines, *(part_pages.kind_lines(kind) if kind else [])])


def spec_table() -> str:
    """Return the fields of ``ComponentSpec`` as a table."""
    comments = comments_of(ComponentSpec)
    rows = ["| field | what it says |", "|---|---|"]
    rows += [
        f"| `{field.name}` | {comments.get(field.name, '')} |" for field in fields(ComponentSpec)
    ]
    return "\n".join(rows)


def comments_of(cls: type) -> dict[str, str]:
    """Return the comment at the end of each field's line."""
    lines = (line.strip() for line in inspect.getsource(cls).splitlines())
    pairs = (line.partition("  # ") for line in lines if ": " in line and "  # " in line)
    return {code.partition(":")[0]: comment for code, _, comment in pairs}


def configuration_page() -> str:
    """Return the page of the keys, one section a heading."""
    parts = [introduction("configuration.in.md")]
    for path, model in sections("", Config):
        heading = f"## {path}" if path else "## Top level"
        parts += [f"{heading}\n", first_line(model, path), "", key_table(model), ""]
    return "\n".join(parts)


def sections(path: str, model: type[StrictModel]) -> Iterator[tuple[str, type[StrictModel]]]:
    """Yield each section with its dotted path, outer before inner."""
    yield path, model
    for name, field in model.model_fields.items():
        inner = model_within(field.annotation)
        if inner is not None and not path.startswith("stages"):
            mark = {list: "[]", dict: ".NAME"}.get(container(field.annotation), "")
            yield from sections(f"{path}.{name}".lstrip(".") + mark, inner)


def model_within(annotation: Any) -> type[StrictModel] | None:
    """Return the model in ``Model``, ``Model | None``, ``list[Model]`` or ``dict[str, Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return annotation
    found = (model_within(argument) for argument in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)


def container(annotation: Any) -> Any:
    """Return list or dict where the annotation is one of models."""
    return typing.get_origin(annotation)


def first_line(model: type[StrictModel], path: str) -> str:
    """Return what the section is for."""
    text = " ".join((inspect.getdoc(model) or "").replace("``", "`").split())
    text = text.removeprefix(f"`{path}`: ").strip()
    return text[:1].upper() + text[1:]


def key_table(model: type[StrictModel]) -> str:
    """Return the keys of a section as a table."""
    rows = ["| key | type | default | what it does |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        text = f"{(field.description or '').replace('|', chr(92) + '|')}{remark(field)}"
        rows.append(f"| `{name}` | {type_name(field.annotation)} | {default(field)} | {text} |")
    return "\n".join(rows)


def remark(field: FieldInfo) -> str:
    """Return who reads the key, where that is not every run."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    if extra.get("status") == "not_yet":
        values = extra.get("values")
        which = f": {', '.join(map(str, values))}" if isinstance(values, list) else ""
        return f" *(not supported yet{which})*"
    if extra.get("status") == "other":
        return f" *(read by {extra['used_by']})*"
    if extra.get("status") == "machine":
        return " *(follows the machine)*"
    return ""


def type_name(annotation: Any) -> str:
    """Return the type as a reader of YAML would call it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(type_name(part) for part in arguments if part is not type(None))
    if origin in {list, dict}:
        return f"{origin.__name__} of {type_name(arguments[-1])}"
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return "section"
    return {
        Any: "anything",
        float: "number",
        int: "integer",
        str: "text",
        bool: "true or false",
    }.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default(field: FieldInfo) -> str:
    """Return the default as YAML writes it; empty where there is none or it is a section."""
    if field.default is PydanticUndefined:
        return ""
    words = {None: "none", True: "`true`", False: "`false`", "": '`""`'}
    if field.default is None or isinstance(field.default, (bool, str)):
        return words.get(field.default, f"`{field.default}`")
    return f"`{field.default}`"


def commands_page() -> str:
    """Return the page of our commands, as the command line describes itself."""
    from trinity.cli.lazy import COMMANDS
    from trinity.cli.main import app

    root = get_command(app)
    parts = [introduction("commands.in.md"), command_entry("trinity", root)]
    # of distributions beside the core
    beside = (
        "serve",
        "harbor",
        "debug",
        "log",
        "plan",
        "perf",
        "examples",
        "view",
        "studio",
        "tinker",
    )
    of_lab = ("sweep", "compare", "eval", "rescore", "export", "data", "experiences")
    for name in (*COMMANDS, *beside, *of_lab):
        found = root.resolve_command(None, [name])[1]
        parts += [command_entry(*named) for named in commands(f"trinity {name}", found)]
    return "\n".join(parts)


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # Any: typer's command or group
    """Yield each command with its full name, a group before its members."""
    yield name, command
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    for word in inner:
        if not inner[word].hidden:
            yield from commands(f"{name} {word}", inner[word])


def command_entry(name: str, command: Any) -> str:
    """Return the heading, the help and the options of one command."""
    arguments = [p.name.upper() for p in command.params if not p.opts[0].startswith("-")]
    rows = [f"## {' '.join([name, *arguments])}\n", inspect.cleandoc(command.help or ""), ""]
    options = [p for p in command.params if getattr(p, "help", None) and not p.hidden]
    options = [p for p in options if not p.name.endswith("_completion")]  # typer's own
    if options:
        rows += ["| option | what it does |", "|---|---|"]
    for option in options:
        names = ", ".join(f"`{word}`" for word in words_of(option))
        needed = " Required." if option.required else ""
        rows.append(f"| {names} | {option.help.replace('|', chr(92) + '|')}{needed} |")
    return "\n".join([*rows, ""])


def words_of(option: Any) -> list[str]:  # Any: typer's option or argument
    """Return how the user writes it: the option's words, or an argument's name."""
    is_option = option.opts[0].startswith("-")
    return [*option.opts, *option.secondary_opts] if is_option else [option.name.upper()]


def run_directory_page() -> str:
    """Return the page of a run's folder, from the docstrings of those who write it."""
    from trinity.runtime.record import checkpoint, rundir

    page = introduction("run-directory.in.md").replace("RUN_TREE", paragraph(rundir, 1))
    return page.replace("CHECKPOINT_TREE", paragraph(checkpoint, 1))


def paragraph(module: types.ModuleType, number: int) -> str:
    """Return one paragraph of a module's docstring; the first line is number 0."""
    return inspect.cleandoc(module.__doc__ or "").split("\n\n")[number]


def checks_page() -> str:
    """Return the page of the conformance checks, each with the mistakes that it catches."""
    from trinity.extend import PluginManager
    from trinity_testing.planning import collect_checks

    catalogue = catalogue_of_mistakes()
    parts = [introduction("checks.in.md")]
    group = ""
    for check in collect_checks(PluginManager.discover(env={})):
        if check.group != group:
            group = check.group
            parts.append(
                f"\n## {group}\n\n| check | what it finds | what it catches |\n|---|---|---|\n"
            )
        caught = [
            f"{catalogue.mistake_of(wrong)} (`{wrong.subject}`)"
            for wrong in catalogue.WRONG
            if wrong.check == check.id
        ]
        finds = (inspect.getdoc(check.function) or "").splitlines()[0].removeprefix("Find ")
        finds = finds.replace("``", "`").rstrip(".")
        note = " *(a warning)*" if check.severity == "warning" else ""
        parts.append(f"| `{check.id}`{note} | {finds} | {'; '.join(caught)} |\n")
    return "".join(parts)


def catalogue_of_mistakes() -> types.ModuleType:
    """Return the list of wrong components that the kit's own tests use."""
    sys.path.append(str(MISTAKES))
    try:
        return importlib.import_module("wrong_catalogue")
    finally:
        sys.path.remove(str(MISTAKES))


def introduction(name: str) -> str:
    """Return how a page starts: what no code can tell."""
    return HEADER + (REFERENCE / name).read_text(encoding="utf-8")


PAGES: dict[str, Callable[[], str]] = {
    "hooks.md": hooks_page,
    "configuration.md": configuration_page,
    "commands.md": commands_page,
    "run-directory.md": run_directory_page,
    "checks.md": checks_page,
    "promises.md": lambda: HEADER + str(promise_page.promises_page()),
    "algorithms/index.md": lambda: HEADER + algorithm_pages.index_page(),
    "algorithms/parts.md": lambda: HEADER + algorithm_pages.parts_page(),
}


def algorithm_page(name: str) -> str:
    """Return the page of one algorithm."""
    return HEADER + str(algorithm_pages.algorithm_page(name))


def part_page(name: str) -> str:
    """Return the page of one kind of component."""
    return HEADER + str(part_pages.part_page(name))


PAGES |= {"parts/index.md": lambda: HEADER + str(part_pages.index_page())}
PAGES |= {f"parts/{name}.md": partial(part_page, name) for name in part_pages.SHAPES}
PAGES |= {
    f"algorithms/{name}.md": partial(algorithm_page, name) for name in algorithm_pages.algorithms()
}

if __name__ == "__main__":
    main()
