"""What the checks of every plugin find in its metadata and in its import."""

import logging
import signal
import sys

import pytest
from trinity_testing.planning import collect_checks, run_checks

GOOD = "TRINITY_PLUGIN_API = 1\n"


def bad(manager, name, *, ids):
    results = run_checks(name, manager, ids=ids)
    return {r.id: r.message for r in results if r.status in {"FAIL", "ERROR"}}


def test_a_plain_plugin_has_no_findings(throwaway_plugin):
    manager = throwaway_plugin("plain", {"plain_plugin.py": GOOD})

    assert bad(manager, "plain", ids=["static", "import"]) == {}


def test_a_plugin_is_found_by_its_distribution_too(throwaway_plugin):
    manager = throwaway_plugin("plain", {"plain_plugin.py": GOOD})

    assert bad(manager, "trinity-plain", ids=["static"]) == {}


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        ("trinity-core>=0.1", "its requirement 'trinity-core>=0.1' has no upper bound"),
        ("", "it does not require trinity-core"),
        ("pluggy<99", "it does not require trinity-core"),
    ],
)
def test_a_requirement_on_the_core_needs_an_upper_bound(throwaway_plugin, requires, message):
    manager = throwaway_plugin("open", {"open_plugin.py": GOOD}, requires=requires)

    assert bad(manager, "open", ids=["static"]) == {"static.requires_core": message}


def test_a_missing_licence_and_a_missing_api_are_found(throwaway_plugin):
    manager = throwaway_plugin("bare", {"bare_plugin.py": "x = 1\n"}, license_expression="")

    assert bad(manager, "bare", ids=["static"]).keys() == {"static.license", "static.api_declared"}


def test_a_plugin_that_does_not_import_fails_by_its_entry_point(throwaway_plugin):
    manager = throwaway_plugin("torn", {"torn_plugin.py": GOOD + "import nowhere_to_be_found\n"})

    found = bad(manager, "torn", ids=["static"])

    assert found.keys() >= {"static.entry_point"}
    assert "nowhere_to_be_found" in found["static.entry_point"]


BUSY = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.2: pass"
THREAD = "import threading as t; t.Thread(target=t.Event().wait, args=(9,), daemon=True).start()"
SIGNAL = "import signal; signal.signal(signal.SIGTERM, lambda *_: None)"
LOGGING = "import logging; logging.getLogger().setLevel(logging.CRITICAL)"
CONNECT = """
import socket
try:
    socket.create_connection(("127.0.0.1", 9), 0.1)
except OSError:
    pass
"""


@pytest.mark.parametrize(
    ("line", "check", "words"),
    [
        ("import numpy", "import.no_heavy", "numpy"),
        (BUSY, "import.budget", "more than 50 ms"),
        ("import os; os.environ['KIT'] = '1'", "import.no_side_effects", "variable KIT"),
        (THREAD, "import.no_side_effects", "starts a thread"),
        (CONNECT, "import.no_side_effects", "opens a network connection"),
        ("import os; os.system('true')", "import.no_side_effects", "starts a process"),
        ("import os; os.chdir('.')", "import.no_side_effects", "changes the working directory"),
        ("import random; random.seed(1)", "import.no_side_effects", "the random numbers of others"),
        ("import sys; sys.path.append('x')", "import.no_side_effects", "changes sys.path"),
        (SIGNAL, "import.no_side_effects", "changes a signal handler"),
        (LOGGING, "import.no_side_effects", "changes the root logger"),
        ("open('/dev/null', 'w').close()", "import.no_side_effects", "writes the file /dev/null"),
    ],
)
def test_what_a_plugin_module_must_not_do_is_found(
    throwaway_plugin, monkeypatch, request, line, check, words
):
    monkeypatch.setenv("KIT", "0")  # the import in this process changes it too, and these
    monkeypatch.setattr("sys.path", list(sys.path))
    handler, level = signal.getsignal(signal.SIGTERM), logging.getLogger().level
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, handler))
    request.addfinalizer(lambda: logging.getLogger().setLevel(level))
    manager = throwaway_plugin("busy", {"busy_plugin.py": GOOD + line + "\n"})

    assert words in bad(manager, "busy", ids=["import"])[check]


def test_a_disabled_plugin_is_skipped(throwaway_plugin):
    throwaway_plugin("plain", {"plain_plugin.py": GOOD})
    from trinity.extend import PluginManager

    manager = PluginManager.discover(env={}, disabled=["plain"])

    results = run_checks("plain", manager, ids=["import"])

    assert {r.status for r in results} == {"SKIP"}


def test_checks_of_a_plugin_that_cannot_be_imported_are_one_failing_check(throwaway_plugin):
    source = GOOD + (
        "from trinity.extend import hookimpl\n"
        "@hookimpl\n"
        "def trinity_conformance_checks():\n"
        "    return {'torn': 'no_such_module:checks'}\n"
    )
    manager = throwaway_plugin("torn", {"torn_checks_plugin.py": source})

    assert "torn.importable" in [check.id for check in collect_checks(manager)]
    assert "no_such_module" in bad(manager, "torn", ids=["torn"])["torn.importable"]


def test_with_no_plugin_in_use_metadata_imports_and_components_are_checked(no_discovery):
    groups = {check.group for check in collect_checks(no_discovery)}

    assert groups == {"static", "import", "component"}


def test_the_groups_of_the_kinds_come_by_the_hook(throwaway_plugin):
    manager = throwaway_plugin("plain", {"plain_plugin.py": GOOD})

    groups = {check.group for check in collect_checks(manager)}

    assert groups >= {"workflow", "reward_fn", "advantage_fn", "policy_loss_fn"}
