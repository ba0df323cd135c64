"""The fixtures of plugin authors: a throw-away plugin, and no discovery at all."""

import subprocess
import sys
import textwrap

PLUGIN = """
from trinity.extend import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_reward_fns():
    return {"dull": "dull_plugin:DullReward"}
"""


def test_a_throwaway_plugin_is_seen_by_other_processes_too(throwaway_plugin):
    throwaway_plugin("dull", {"dull_plugin.py": PLUGIN})
    ask = "from trinity.extend import get_manager; print(get_manager().find('reward_fn', 'dull'))"

    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=False
    )

    assert "trinity-dull" in done.stdout, done.stderr


def test_a_throwaway_plugin_is_gone_in_other_processes_too():
    ask = "from trinity.extend import get_manager; print(get_manager().names('reward_fn'))"

    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=True
    )

    assert "dull" not in done.stdout


DISCOVERIES = """
    import pytest
    from trinity.extend import PluginManager, get_manager
    from trinity_testing.fixtures import no_discovery


    def test_that_asks_the_manager_it_has(no_discovery):
        assert get_manager().find("reward_fn", "math_reward")


    def test_that_looks_for_plugins(no_discovery):
        PluginManager.discover()


    def test_that_hides_that_it_looked(no_discovery):
        try:
            PluginManager.discover()
        except BaseException:
            pass


    def test_that_comes_after(request):
        assert PluginManager.discover(env={}).records
"""


def test_who_looks_for_plugins_where_it_is_refused_fails_and_is_named(tmp_path):
    file = tmp_path / "test_discovery.py"
    file.write_text(textwrap.dedent(DISCOVERIES))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "1 failed, 3 passed, 2 errors" in done.stdout, done.stdout
    assert f"plugins were looked for at {file}:12, and this test refuses it" in done.stdout
    assert "plugins were looked for at " + f"{file}:17" in done.stdout
