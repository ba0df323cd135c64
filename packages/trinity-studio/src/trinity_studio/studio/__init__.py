"""The configuration page: a YAML file made by clicking, checked, and run."""
