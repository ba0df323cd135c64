from __future__ import annotations

import subprocess
import sys

import pytest
from trinity.common.config import Config
from trinity.common.config.paths import models_in
from trinity.common.config.schema import json_schema

#: status -> number of fields; the section fields themselves are not counted
COUNTS = {"core": 245, "machine": 10, "other": 77, "not_yet": 28, "section": 31}


def every_field(model=Config, path=""):
    """Yield ``(path, field)`` of the whole schema, each section once."""
    seen: set[tuple[type, str]] = set()
    waiting = [(model, path)]
    while waiting:
        model, path = waiting.pop(0)
        for name, info in model.model_fields.items():
            if (model, name) in seen:
                continue
            seen.add((model, name))
            below = f"{path}.{name}" if path else name
            yield below, info
            waiting += [(inner, below) for inner in models_in(info.annotation)]


def test_every_field_says_who_reads_it() -> None:
    statuses = {"core", "machine", "other", "not_yet", "section"}

    wrong = [
        p
        for p, info in every_field()
        if (info.json_schema_extra or {}).get("status") not in statuses
    ]

    assert wrong == []


def test_a_field_that_the_runtime_does_not_read_names_its_reader() -> None:
    nameless = [
        path
        for path, info in every_field()
        if info.json_schema_extra["status"] == "other" and not info.json_schema_extra["used_by"]
    ]

    assert nameless == []


def test_every_field_is_described() -> None:
    assert [path for path, info in every_field() if not info.description] == []


def test_the_numbers_of_fields_by_reader() -> None:
    counts: dict[str, int] = {}
    for _, info in every_field():
        status = info.json_schema_extra["status"]
        counts[status] = counts.get(status, 0) + 1

    assert counts == COUNTS


def test_importing_the_configuration_imports_nothing_heavy() -> None:
    heavy = [
        "torch",
        "ray",
        "transformers",
        "datasets",
        "numpy",
        "omegaconf",
        "yaml",
        "huggingface_hub",
    ]
    code = f"import sys, trinity.common.config; print([m for m in {heavy} if m in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_the_schema_lists_the_components_that_are_installed(builtin_only) -> None:
    schema = json_schema(builtin_only)

    field = schema["$defs"]["AlgorithmConfig"]["properties"]["policy_loss_fn"]
    assert {"ppo", "sft", "dpo"} <= set(field["anyOf"][0]["enum"])
    assert {"type": "null"} in field["anyOf"]


def test_the_schema_refuses_unknown_keys_as_the_loader_does(builtin_only) -> None:
    schema = json_schema(builtin_only)

    assert schema["additionalProperties"] is False
    assert all(section["additionalProperties"] is False for section in schema["$defs"].values())


def test_the_schema_of_a_loadable_file_accepts_it(builtin_only, data) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="pip install jsonschema")
    from omegaconf import OmegaConf

    file = data / "trinity_rft" / "examples__opmd_gsm8k__opmd_gsm8k.yaml"
    content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    content["algorithm"]["algorithm_type"] = "grpo"

    jsonschema.validate(content, json_schema(builtin_only))


def test_a_name_that_is_assigned_to_the_monitor_is_its_type() -> None:
    config = Config()
    config.monitor = "jsonl"
    assert config.monitor.monitor_type == "jsonl"
