"""Which of our components a golden case is about, and how it is called."""
