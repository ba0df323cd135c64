"""The buffer between exploring and training that hands out experiences by priority."""
