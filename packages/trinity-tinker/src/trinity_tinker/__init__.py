"""A server of the Tinker protocol: clients train and sample with models of this machine."""
