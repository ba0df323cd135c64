"""vLLM as a rollout engine of Trinity, in the engine's own process."""
