"""Reads run directories and draws them; changes nothing in them."""
