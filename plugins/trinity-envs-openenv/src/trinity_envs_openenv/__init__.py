"""Environments of OpenEnv as workflows of Trinity."""
