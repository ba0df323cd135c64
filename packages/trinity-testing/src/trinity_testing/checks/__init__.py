"""The conformance checks, one file for each kind of component."""
