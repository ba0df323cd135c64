"""What a check is, and those that hold for every plugin: the kit's own stand in trinity-testing."""
