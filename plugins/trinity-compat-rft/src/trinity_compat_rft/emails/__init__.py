"""Mails in a database, an agent that searches them, and what its answers are worth."""
