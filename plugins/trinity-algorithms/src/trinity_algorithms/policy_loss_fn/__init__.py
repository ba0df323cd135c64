"""Policy losses of these algorithms."""
