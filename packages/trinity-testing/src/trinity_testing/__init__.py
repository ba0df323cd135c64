"""Fakes, builders and conformance checks for authors of Trinity plugins."""
