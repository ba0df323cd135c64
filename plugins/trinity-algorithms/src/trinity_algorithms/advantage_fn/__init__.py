"""Advantages of these algorithms."""
