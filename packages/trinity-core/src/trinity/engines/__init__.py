"""Rollout engines: they sample continuations of prompts."""
