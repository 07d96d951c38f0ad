"""The training loop, gradients, optimiser and schedules, checkpoints, data-parallel processes, the log."""
