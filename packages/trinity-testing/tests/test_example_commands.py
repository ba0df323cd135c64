"""``trinity examples`` gives who installed wheels an example that runs."""

from pathlib import Path

import pytest
from trinity.cli.main import app
from trinity.errors import ConfigError
from trinity_testing.example_commands import HERE
from typer.testing import CliRunner


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Return what types ``trinity examples ...`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["examples", *words])


def test_each_example_is_listed_with_its_title(examples):
    lines = examples("list").output.splitlines()

    assert [line.split()[0] for line in lines] == ["custom_plugin", "opmd_math", "quickstart"]
    assert lines[2].endswith("Quickstart: a small model learns to add")


def test_an_example_is_copied_with_the_one_that_makes_its_model(examples):
    done = examples("copy", "custom_plugin", "--no-prepare")

    assert done.output.splitlines()[-2:] == [
        "first: python examples/quickstart/prepare.py",
        "next: trinity run --local --config examples/custom_plugin/custom_plugin.yaml"
        " --plugin-dir examples/custom_plugin/parts",
    ]
    for path in ("custom_plugin/parts/closeness.py", "quickstart/prepare.py"):
        assert (Path("examples") / path).read_bytes() == (HERE / path).read_bytes()


def test_a_second_copy_changes_nothing_and_refuses_to_overwrite_what_was_changed(examples):
    examples("copy", "quickstart", "--no-prepare")
    again = examples("copy", "quickstart", "--no-prepare")
    config = Path("examples/quickstart/quickstart.yaml")
    config.write_text("name: mine\n")

    refused = examples("copy", "quickstart", "--no-prepare")

    assert "wrote" not in again.output
    assert isinstance(refused.exception, ConfigError)
    assert "quickstart.yaml exists and differs" in str(refused.exception)
    assert config.read_text() == "name: mine\n"


def test_an_unknown_example_is_answered_with_those_there_are(examples):
    done = examples("copy", "quickstrat")

    assert done.exit_code == 2
    assert "Did you mean 'quickstart'?" in done.output
