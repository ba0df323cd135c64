"""The command line: fast, lazy, and clear about what went wrong."""

from __future__ import annotations

import errno
import re
import subprocess
import sys

import pytest
from trinity.cli import main as main_module
from trinity.cli.main import main
from trinity.extend import get_manager, set_manager

HEAVY = ["torch", "ray", "transformers", "datasets", "numpy", "vllm", "streamlit"]


@pytest.fixture
def cli(monkeypatch, capsys, site):
    """Return a function that runs ``trinity`` here and returns its code, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trinity", *arguments])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


COMMAND = """
    from trinity.extend import hookimpl

    @hookimpl
    def trinity_commands():
        return {"greet": "greeting:app"}
"""
GREETING = """
    import os

    import typer

    app = typer.Typer()

    @app.command()
    def greet(name: str, fail: bool = False):
        if name.isdecimal():
            raise OSError(int(name), os.strerror(int(name)), "a\\x1bfile" if fail else None)
        if fail:
            raise KeyError("lost")
        typer.echo(f"hello {name}")
"""


@pytest.fixture
def greeting(site):
    site.plugin("greeter", COMMAND)
    site.module("greeting", GREETING)
    set_manager(site.discover())
    return site


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "list"], ["--version"]])
def test_listing_imports_nothing_heavy(arguments):
    code = (
        "import sys; sys.argv = ['trinity', *sys.argv[1:]]\n"
        "from trinity.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert not left.code\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_help_lists_our_commands_and_those_of_plugins(cli, greeting):
    code, out, _ = cli("--help")
    assert code == 0
    assert "plugins" in out
    assert "greet (plugin greeter (trinity-greeter 1.0))" in " ".join(out.split())
    assert "greeting" not in sys.modules


def test_help_shows_the_summary_of_a_plugins_command(cli, site):
    spec = 'ComponentSpec("greeting:app", "Greet somebody.")'
    command = COMMAND.replace("import hookimpl", "import ComponentSpec, hookimpl")
    site.plugin("greeter", command.replace('"greeting:app"', spec))
    set_manager(site.discover())

    assert re.search(r"^  greet +Greet somebody\.$", cli("--help")[1], re.MULTILINE)


def test_a_path_after_an_equals_sign_is_below_the_home_as_after_a_space(
    cli, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    code, _, said = cli("run", "--config=~/gone.yaml")

    assert code == 1
    assert f"{tmp_path}/gone.yaml" in said


@pytest.mark.parametrize(
    ("command", "owner"),
    [("debug", "trinity-debug"), ("perf", "trinity-debug"), ("view", "trinity-studio")],
)
def test_a_command_of_another_distribution_is_the_line_that_installs_it(cli, site, command, owner):
    set_manager(site.discover())

    code, _, said = cli(command, "--help")

    line = f"trinity {command} is part of {owner}. Run: python -m pip install {owner}"
    assert (code, said.split(" (in a clone: -e p")[0]) == (1, f"Error: {line}")


def test_a_plugins_command_runs(cli, greeting):
    assert cli("greet", "you")[:2] == (0, "hello you\n")


def test_help_is_as_written(cli, site, golden, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    set_manager(site.discover())
    golden(cli("--help")[1], "cli_help")


def test_a_command_given_by_two_plugins_is_an_error_at_use_only(cli, greeting):
    greeting.plugin("greeter2", COMMAND)
    set_manager(greeting.discover())
    assert cli("plugins", "list")[0] == 0
    code, _, err = cli("greet", "you")
    assert code == 1
    assert "registered twice: by greeter (trinity-greeter 1.0) and by greeter2 (trinity-gree" in err


def test_a_command_that_does_not_import_says_whose_it_is(cli, site):
    site.plugin("greeter", COMMAND)
    site.module("greeting", "import no_such_module\n")
    set_manager(site.discover())
    code, _, err = cli("greet", "you")
    assert code == 1
    assert "command 'greet' of plugin greeter (trinity-greeter 1.0) cannot be loaded" in err


def test_an_unknown_command_is_a_usage_error_with_the_nearest(cli, greeting):
    code, _, err = cli("plugin")
    assert code == 2
    assert "no command named 'plugin'. Did you mean 'plugins'?" in err


def test_an_unknown_option_is_a_usage_error(cli, greeting):
    assert cli("greet", "you", "--loud")[0] == 2


def test_an_unexpected_error_is_one_line_and_code_3(cli, greeting, monkeypatch):
    monkeypatch.delenv("TRINITY_DEBUG", raising=False)
    code, _, err = cli("greet", "you", "--fail")
    assert code == 3
    assert err == "Internal error: KeyError: 'lost'. Set TRINITY_DEBUG=1 for more.\n"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "cannot be used: Permission denied. Let this user read and write it, or"),
        (errno.ENOENT, "cannot be used: No such file or directory. Use a path that exists"),
        (errno.ENOSPC, "cannot be written: No space left on device. Free space, or write to"),
    ],
)
def test_what_the_system_refuses_of_a_file_is_said_with_what_to_do(cli, greeting, number, said):
    code, _, err = cli("greet", str(number), "--fail")
    assert code == 1
    assert err.startswith(f"Error: a\\x1bfile {said}")


def test_a_full_disk_has_no_name_and_a_lost_connection_is_no_file(cli, greeting):
    full = cli("greet", str(errno.ENOSPC))
    assert full[0] == 1
    assert full[2].startswith("Error: a file cannot be written: No space left on device.")
    lost = cli("greet", str(errno.ECONNRESET))
    assert lost[0] == 3
    assert lost[2].startswith("Internal error: ConnectionResetError")


def test_trinity_debug_shows_the_traceback(cli, greeting, monkeypatch):
    monkeypatch.setenv("TRINITY_DEBUG", "1")
    assert "Traceback (most recent call last)" in cli("greet", "you", "--fail")[2]


def test_an_error_of_ours_is_one_message_and_code_1(cli, dull):
    set_manager(dull.discover())
    code, out, err = cli("plugins", "show", "dul")
    assert (code, out) == (1, "")
    assert err == "Error: no plugin named 'dul'. Did you mean 'dull'? Known: dull.\n"


def test_the_version_is_printed_without_looking_for_plugins(cli, monkeypatch):
    monkeypatch.setattr(main_module, "PluginManager", None)
    assert cli("--version")[:2] == (0, f"trinity {main_module.__version__}\n")


def test_a_broken_plugin_leaves_the_commands_alive(cli, site):
    site.plugin("bar", "1 / 0")
    set_manager(site.discover())
    code, out, err = cli("--help")
    assert code == 0
    assert "plugins" in out
    assert err.startswith("trinity: plugin bar (trinity-bar 1.0), entry point")


def test_a_plugin_is_left_out_for_one_run(cli, site):
    site.plugin("bar", "1 / 0")
    code, out, err = cli("-P", "no:bar", "plugins", "list")
    assert (code, err) == (0, "")
    assert any(line.startswith("bar ") and "disabled" in line for line in out.splitlines())
    assert get_manager().admission.disabled == ("bar",)


@pytest.mark.parametrize(
    ("switch", "said"), [("bar", "write -P no:NAME"), ("no:baz", "no plugin named 'baz'")]
)
def test_a_switch_that_means_nothing_is_a_usage_error(cli, site, switch, said):
    site.plugin("bar", "1 / 0")
    code, _, err = cli("-P", switch, "plugins", "list")
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "-P", "no:one"), "-P stands before the command: trinity -P no:NAME run ..."),
        (
            ("plugins", "list", "--plugin-dir", "d"),
            "--plugin-dir stands before the command: trinity --plugin-dir DIR plugins ...",
        ),
    ],
)
def test_a_switch_behind_the_command_is_told_its_place(cli, arguments, said):
    code, _, errors = cli(*arguments)

    assert code == 2
    assert said in errors


def test_a_plugin_folder_holds_for_every_command(cli, site, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.py").write_text("VALUE = 1\n")
    code, out, _ = cli("--plugin-dir", str(folder), "plugins", "list")
    assert code == 0
    assert re.search(r"^mine +\(plugin folder\)", out, re.MULTILINE)
