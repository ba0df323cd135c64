"""The plugin is not installed where vLLM is not: its source is looked for beside its tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "src"))
