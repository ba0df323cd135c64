"""The room that keeps what is to be learnt from: tasks on one side, experiences on the other."""
