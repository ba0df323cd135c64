"""Write the dataset of WebShop: examples/grpo_webshop/get_webshop_data.py under its older name."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    script = ROOT / "examples" / "grpo_webshop" / "get_webshop_data.py"
    runpy.run_path(str(script), run_name="__main__")
