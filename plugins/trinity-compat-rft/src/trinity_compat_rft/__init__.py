"""What Trinity-RFT published, for Trinity: import paths, workflows, rewards."""
