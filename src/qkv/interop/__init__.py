"""Other programs' formats: import and export of checkpoints, and engines that run exported translators."""
