"""Algorithms of papers beside GRPO, PPO, SFT and DPO, as a plugin."""
