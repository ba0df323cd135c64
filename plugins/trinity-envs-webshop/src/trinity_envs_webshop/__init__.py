"""WebShop, the shopping environment, without Java, as a plugin."""
