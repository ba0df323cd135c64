"""Run a console script with torch imported first: ``python -m pretend_cuda trinity run ...``.

A program that looks for the devices' files, or reads torch's version, before it imports torch sees
no pretend GPU.
"""

import runpy
import shutil
import sys

import torch  # noqa: F401 -- installs the devices

sys.argv = sys.argv[1:]
sys.argv[0] = shutil.which(sys.argv[0], path=sys.executable.rpartition("/")[0]) or sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
