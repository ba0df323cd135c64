"""The ledger of a run in SQL: who explored what, with which weights, and which step trained it."""
