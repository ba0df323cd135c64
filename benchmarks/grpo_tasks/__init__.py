"""One small task, learned by different trainers: say the digit that is asked for, eight times."""
