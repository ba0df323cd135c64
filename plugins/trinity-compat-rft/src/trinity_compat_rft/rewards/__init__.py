"""The rewards that Trinity-RFT's configurations name; each is imported when it is asked for."""
