"""What every room stands on: errors, configuration, seeds, hardware, files. Imports nothing of ours."""
