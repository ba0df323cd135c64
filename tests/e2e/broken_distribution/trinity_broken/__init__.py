import no_such_module  # noqa: F401 -- this is what is broken
