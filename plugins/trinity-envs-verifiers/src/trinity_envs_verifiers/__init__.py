"""Tasksets of verifiers as a workflow of Trinity."""
