"""Write ALFWorld's dataset: examples/grpo_alfworld/get_alfworld_data.py under its older name."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    script = ROOT / "examples" / "grpo_alfworld" / "get_alfworld_data.py"
    runpy.run_path(str(script), run_name="__main__")
