"""What a run leaves on the disk, written whole and read back: its folder, checkpoints and logs."""
