"""Several LoRA adapters of one frozen model in one run: one for each agent."""
