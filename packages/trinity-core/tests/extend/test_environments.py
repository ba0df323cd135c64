"""Virtual environments of plugins: where they lie, what makes them, when one counts as there."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from trinity.errors import PluginError
from trinity.extend import EnvironmentSpec, environment_python
from trinity.extend.environments import (
    environment_folder,
    missing_environment,
    python_in,
    words_as_here,
    write_note,
)
from trinity_testing.new_environment import chosen_python, commands_of, make_environment

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
        ('{"packages": ["games==1.0", "dice"], "python": "<3"}', "for other versions of Python"),
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
    assert missing_environment(SPEC, env=env) == f"the Python of {made} does not exist any more"


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


@pytest.mark.parametrize(("version", "shown"), [("3.9.1", "3.9.1"), ("", "not a working Python")])
def test_a_given_python_that_does_not_fit_is_refused(tmp_path, version, shown):
    given = _program(tmp_path / "python", version) if version else str(tmp_path / "nothing")
    with pytest.raises(PluginError, match=rf"needs Python >=3.11, and {given} is {shown}"):
        chosen_python(SPEC, given=given, uv=None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "../games"}, "name is '../games'"),
        ({"folder": "../games"}, "folder is '../games'"),
        ({"packages": "games"}, "packages is 'games'"),
        ({"packages": ()}, "packages is ()"),
        ({"python": "3.11 or so"}, "python is '3.11 or so'"),
        ({"left_out": "sound"}, "left_out is 'sound'"),
        ({"as_here": ("core==1",)}, "as_here is ('core==1',)"),
    ],
)
def test_one_that_could_not_be_made_is_refused_where_it_is_declared(fields, said):
    given = {"name": "games", "what": "", "size": "", "packages": ("games",), **fields}
    with pytest.raises(TypeError) as raised:
        EnvironmentSpec(**given)
    assert said in str(raised.value)


WITH_TRINITY = EnvironmentSpec(
    name="games",
    what="",
    size="",
    packages=("games==1.0",),
    left_out=("sound", "video"),
    as_here=("trinity-core[api]", "trinity-games"),
)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that says of a distribution where it was installed from."""

    def install(name, *, url=None, record="", **origin):
        about = tmp_path / "site" / f"{name.replace('-', '_')}-1.5.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (about / "RECORD").write_text(record)
        if url:
            (about / "direct_url.json").write_text(json.dumps({"url": url, **origin}))

    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return install


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({}, ["games[api]==1.5"]),
        (
            {"url": "file:///my%20work/games", "dir_info": {"editable": True}},
            ["-e", "/my work/games[api]"],
        ),
        ({"url": "file:///games", "dir_info": {}}, ["games[api] @ file:///games"]),
        (
            {"url": "file:///games-1.5.whl", "archive_info": {}},
            ["games[api] @ file:///games-1.5.whl"],
        ),
        (
            {
                "url": "https://example.org/all.git",
                "vcs_info": {"vcs": "git", "commit_id": "12ab"},
                "subdirectory": "games",
            },
            ["games[api] @ git+https://example.org/all.git@12ab#subdirectory=games"],
        ),
    ],
)
def test_a_distribution_is_installed_there_from_where_it_is_installed_here(
    installed, origin, words
):
    installed("games", **origin)
    assert words_as_here("games[api]") == words


def test_a_distribution_that_is_not_here_cannot_be_there():
    with pytest.raises(PluginError, match=r"it is not installed here\. Run: python -m pip install"):
        words_as_here("no-such-games[api]")


def test_what_is_left_out_is_overridden_by_uv_and_taken_out_again_by_pip(tmp_path, installed):
    installed("trinity-core", url="file:///core", dir_info={"editable": True})
    installed("trinity-games")
    folder = tmp_path / "games"
    wanted = ["games==1.0", "-e", "/core[api]", "trinity-games==1.5"]

    by_uv = commands_of(WITH_TRINITY, folder=folder, python="python", uv="uv")[1]
    assert by_uv[-6:] == ["--overrides", f"{folder}.left-out.txt", *wanted]
    _, install, uninstall = commands_of(WITH_TRINITY, folder=folder, python="python", uv=None)
    assert install[-5:] == ["install", *wanted]
    assert uninstall[-4:] == ["uninstall", "--yes", "sound", "video"]


def test_one_that_holds_trinity_of_another_place_is_made_anew(tmp_path, installed, env):
    folder = environment_folder(WITH_TRINITY, env=env)
    installed("trinity-core", url="file:///old", dir_info={"editable": True})
    installed("trinity-games")
    python_in(folder).parent.mkdir(parents=True)
    python_in(folder).symlink_to(sys.executable)
    write_note(WITH_TRINITY, folder)
    assert missing_environment(WITH_TRINITY, env=env) == ""
    installed("trinity-core", url="file:///new", dir_info={"editable": True})
    assert missing_environment(WITH_TRINITY, env=env) == (
        f"the one in {folder} holds games==1.0, -e /old[api], trinity-games==1.5"
    )


BUILT = """\
games/play.py,sha256=aaa,3
games/__pycache__/play.pyc,,
games-1.5.dist-info/INSTALLER,sha256=uv,2
games-1.5.dist-info/direct_url.json,sha256=url,9
../../../bin/games,sha256=bin,7
"""
BUILT_BY_ANOTHER = BUILT.replace("=uv,2", "=pip,3").replace("=bin,7", "=other,9")


@pytest.mark.parametrize(
    ("origin", "now", "is_other"),
    [
        ({"dir_info": {}}, BUILT, False),
        ({"dir_info": {}}, BUILT_BY_ANOTHER, False),
        ({"dir_info": {}}, BUILT.replace("=aaa,3", "=bbb,3"), True),
        ({"archive_info": {}}, BUILT.replace("=aaa,3", "=bbb,3"), True),
        ({"dir_info": {"editable": True}}, BUILT.replace("=aaa,3", "=bbb,3"), False),
    ],
)
def test_one_that_holds_an_earlier_build_of_trinity_is_made_anew(
    installed, env, origin, now, is_other
):
    spec = EnvironmentSpec(name="games", what="", size="", packages=("dice",), as_here=("games",))
    folder = environment_folder(spec, env=env)
    installed("games", url="file:///games", record=BUILT, **origin)
    python_in(folder).parent.mkdir(parents=True)
    python_in(folder).symlink_to(sys.executable)
    write_note(spec, folder)
    assert missing_environment(spec, env=env) == ""

    installed("games", url="file:///games", record=now, **origin)

    said = f"the one in {folder} holds another build of games" if is_other else ""
    assert missing_environment(spec, env=env) == said


def test_what_other_machines_want_may_lie_in_a_folder_of_its_own(env, tmp_path):
    spec = replace(SPEC, folder="games-cpu")
    assert environment_folder(spec, env=env) == tmp_path / "games-cpu"
    assert missing_environment(spec, env=env) == f"there is none in {tmp_path / 'games-cpu'}"


def test_the_environment_that_this_process_runs_in_is_never_cleared(env, monkeypatch, golden):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    folder = environment_folder(SPEC)
    folder.mkdir()
    link = folder.with_name("link")
    link.symlink_to(folder)
    monkeypatch.setattr(sys, "prefix", str(link))
    kept = folder / "kept"
    kept.touch()

    with pytest.raises(PluginError) as raised:
        make_environment(SPEC, say=print)

    golden(str(raised.value), "plugins_environment_own", FOLDER=folder)
    assert kept.exists()


def _with_python(versions: str) -> EnvironmentSpec:
    return EnvironmentSpec(name="games", what="", size="", packages=("games",), python=versions)


def _program(path, version: str) -> str:
    """Write what answers as a Python of that version."""
    path.write_text(f"#!/bin/sh\necho {json.dumps(version)}\n")
    path.chmod(0o755)
    return str(path)
