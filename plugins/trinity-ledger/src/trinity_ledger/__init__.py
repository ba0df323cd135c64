"""Experiences in the tables of a database, and standalone runs that share them."""
