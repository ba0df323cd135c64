"""The model as a workflow sees it: chats in, experiences out."""
