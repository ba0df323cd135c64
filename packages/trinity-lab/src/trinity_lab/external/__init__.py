"""Evaluate a model behind an OpenAI-compatible API: ``model.external_model``, mode ``bench``."""
