"""An unexpected error says what it broke, where, and whose that is."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from trinity.errors import ConfigError, TrinityError
from trinity.extend import set_manager
from trinity.extend.watch import HungPartError
from trinity.runtime.error_context import boundary, marked


def test_an_error_in_a_plugins_code_names_the_plugin(dull, site):
    module = site.plugin("rough", "def fail():\n    raise ValueError('too rough')\n")
    set_manager(site.discover())
    fail = __import__(module).fail
    with pytest.raises(TrinityError) as raised, boundary("optimizer step 3"):
        fail()
    text = str(raised.value)
    assert text.startswith("optimizer step 3 failed: ValueError: too rough at ")
    assert f"{module}.py:2 (plugin rough (trinity-rough 1.0)). Correct that" in text
    assert text.endswith("trinity.log has the traceback.")


def test_an_error_from_another_process_brings_its_place_along():
    try:
        raise ValueError("far away")
    except ValueError as error:
        sent = pickle.loads(pickle.dumps(marked(error, log="trinity log RUN --room trainer")))
    with pytest.raises(TrinityError) as raised, boundary("optimizer step 3"):
        raise marked(sent, log="another")  # on its way through a second room
    assert "test_boundary.py:29." in str(raised.value)
    assert str(raised.value).endswith("trinity log RUN --room trainer has the traceback.")


class OwnError(BaseException):
    """What no ``except Exception`` sees."""


@pytest.mark.parametrize("error", [asyncio.CancelledError("judge"), OwnError("judge")])
def test_an_error_that_is_no_exception_says_its_place_too(error):
    told = r"explore step 3 failed: \w+: judge at .*test_boundary"
    with pytest.raises(TrinityError, match=told), boundary("explore step 3"):
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), HungPartError("the loss hangs")])
def test_ctrl_c_and_a_hung_part_pass_as_they_are(error):
    with pytest.raises(type(error)), boundary("explore step 3"):
        raise error


def test_a_stop_iteration_is_an_error_where_nothing_may_end():
    with pytest.raises(TrinityError, match="the sync failed: StopIteration"), boundary("the sync"):
        next(iter(()))
    with pytest.raises(StopIteration), boundary("explore step 3", may_end=True):
        next(iter(()))


def test_an_error_that_says_what_to_do_passes_as_it_is():
    with pytest.raises(ConfigError, match=r"^set it to 3$"), boundary("optimizer step 3"):
        raise marked(ConfigError("set it to 3"), log="anywhere")
