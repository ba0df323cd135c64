"""Read the answer, compare it with what only the verifier knows."""

from pathlib import Path

EXPECTED = max(number * 37 % 101 for number in range(1, 41))

answer = Path("/app/largest.txt")
is_right = answer.is_file() and answer.read_text().strip() == str(EXPECTED)
Path("/logs/verifier/reward.txt").write_text(f"{float(is_right)}\n")
