"""Empty as shipped: a module put here is loaded as a plugin where no other folder is named."""
