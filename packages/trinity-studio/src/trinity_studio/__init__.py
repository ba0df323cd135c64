"""What a Trinity run knows, seen in a browser."""
