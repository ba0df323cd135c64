"""The built-in advisors: each follows one way in which runs fail, and speaks once.

Their limits were chosen on one half of a zoo of sick and healthy runs
(``benchmarks/advisor_zoo.py``); docs/explanation/advisors.md has what the other half gave.
"""
