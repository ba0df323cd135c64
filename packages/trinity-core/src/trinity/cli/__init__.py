"""The command line: reads argv, prints."""
