"""The nouns: what travels between the rooms. Importing any of them imports no torch."""
