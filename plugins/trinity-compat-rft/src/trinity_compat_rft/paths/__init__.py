"""The modules that are found under Trinity-RFT's import paths; ``table.py`` says which is where."""
