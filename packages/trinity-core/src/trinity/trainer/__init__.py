"""The trainer: batches in, better weights out."""
