from __future__ import annotations

import pytest
from trinity_testing import conformance

from .conftest import no_sandbox

if no_sandbox():
    pytest.skip(no_sandbox(), allow_module_level=True)

test_plugin = conformance.suite("harbor")
