"""The loop, optimiser and schedules, checkpoints, several processes, the log."""
