"""What the tests of the published documents share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_E2E = Path(__file__).parents[1] / "e2e" / "conftest.py"
_spec = importlib.util.spec_from_file_location("e2e_fixtures", _E2E)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

tiny_model = _module.tiny_model
rows = _module.rows
config_dict = _module.config_dict
write_yaml = _module.write_yaml
trinity = _module.trinity
