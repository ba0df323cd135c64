"""Virtual environments of plugins: where they lie, what makes them, when one counts as there."""

from __future__ import annotations

import json
import sys

import pytest
from trinity.errors import PluginError
from trinity.extend import EnvironmentSpec, environment_python
from trinity.extend.environment_making import chosen_python, commands_of
from trinity.extend.environments import (
    environment_folder,
    missing_environment,
    python_in,
    write_note,
)

SPEC = EnvironmentSpec(
    name="games", what="the package games", size="3 MB", packages=("games==1.0", "dice")
)


@pytest.fixture
def env(tmp_path):
    return {"TRINITY_ENVIRONMENTS": str(tmp_path)}


@pytest.fixture
def made(env):
    """An environment as it is when it is made, with a link in place of its Python."""
    folder = environment_folder(SPEC, env=env)
    python = python_in(folder)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    write_note(SPEC, folder)
    return folder


def test_it_lies_in_the_users_data_folder_unless_a_variable_says_where(tmp_path):
    def folder(**env):
        return str(environment_folder(SPEC, env=env))

    assert folder(XDG_DATA_HOME="/data") == "/data/trinity/environments/games"
    assert folder(TRINITY_ENVIRONMENTS="/here", XDG_DATA_HOME="/data") == "/here/games"
    assert folder().endswith("/.local/share/trinity/environments/games")


def test_one_that_is_not_there_names_the_command_that_makes_it(env, tmp_path, golden):
    with pytest.raises(PluginError) as raised:
        environment_python(SPEC, env=env)
    golden(str(raised.value), "plugins_environment_missing", TMP=tmp_path)


def test_one_that_is_there_gives_its_python(made, env):
    assert missing_environment(SPEC, env=env) == ""
    assert environment_python(SPEC, env=env) == made / "bin" / "python"


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ('{"packages": ["games==0.9"], "python": ">=3.11"}', "holds games==0.9"),
        ("[]", "holds other packages"),
        ("{", "cannot be read (JSONDecodeError)"),
    ],
)
def test_one_with_another_note_is_none(made, env, note, said):
    (made / "trinity-environment.json").write_text(note)
    assert said in missing_environment(SPEC, env=env)


def test_one_whose_python_was_taken_away_is_none(made, env):
    python_in(made).unlink()
    python_in(made).symlink_to("/no/such/python")
    assert missing_environment(SPEC, env=env) == f"the Python of {made} is gone"


def test_one_that_is_half_made_is_none(made, env):
    (made / "trinity-environment.json").unlink()
    assert missing_environment(SPEC, env=env) == f"there is none in {made}"


def test_uv_makes_it_in_two_commands(tmp_path):
    commands = commands_of(SPEC, folder=tmp_path / "games", python=">=3.11", uv="/bin/uv")
    inside = str(tmp_path / "games/bin/python")
    assert commands == [
        ["/bin/uv", "venv", "--quiet", "--clear", "--python", ">=3.11", str(tmp_path / "games")],
        ["/bin/uv", "pip", "install", "--compile-bytecode", "--python", inside, *SPEC.packages],
    ]


def test_this_python_is_taken_where_it_fits():
    assert chosen_python(SPEC, given=None, uv=None) == sys.executable


def test_uv_is_given_the_versions_where_this_python_does_not_fit():
    assert chosen_python(_with_python("<3.9"), given=None, uv="/bin/uv") == "<3.9"


def test_without_uv_a_fitting_python_is_looked_for_on_the_path(tmp_path, monkeypatch):
    _program(tmp_path / "python3.9", "3.9.7")
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = _with_python("==3.9.*")
    assert chosen_python(spec, given=None, uv=None) == str(tmp_path / "python3.9")


def test_no_fitting_python_says_how_to_give_one(tmp_path, monkeypatch, golden):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PluginError) as raised:
        chosen_python(_with_python("<3.9"), given=None, uv=None)
    own = "{}.{}.{}".format(*sys.version_info[:3])
    golden(str(raised.value), "plugins_environment_no_python", OWN=own)


@pytest.mark.parametrize(("version", "shown"), [("3.9.1", "3.9.1"), ("", "no Python that runs")])
def test_a_given_python_that_does_not_fit_is_refused(tmp_path, version, shown):
    given = _program(tmp_path / "python", version) if version else str(tmp_path / "nothing")
    with pytest.raises(PluginError, match=rf"needs Python >=3.11, and {given} is {shown}"):
        chosen_python(SPEC, given=given, uv=None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "../games"}, "name is '../games'"),
        ({"packages": "games"}, "packages is 'games'"),
        ({"packages": ()}, "packages is ()"),
        ({"python": "3.11 or so"}, "python is '3.11 or so'"),
    ],
)
def test_one_that_could_not_be_made_is_refused_where_it_is_declared(fields, said):
    given = {"name": "games", "what": "", "size": "", "packages": ("games",), **fields}
    with pytest.raises(TypeError) as raised:
        EnvironmentSpec(**given)
    assert said in str(raised.value)


def _with_python(versions: str) -> EnvironmentSpec:
    return EnvironmentSpec(name="games", what="", size="", packages=("games",), python=versions)


def _program(path, version: str) -> str:
    """Write what answers as a Python of that version."""
    path.write_text(f"#!/bin/sh\necho {json.dumps(version)}\n")
    path.chmod(0o755)
    return str(path)
