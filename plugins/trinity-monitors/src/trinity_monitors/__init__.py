"""Weights & Biases and MLflow as monitors."""
