"""The plugin keeps the contracts."""

from trinity_testing import conformance

test_plugin = conformance.suite("vllm")
