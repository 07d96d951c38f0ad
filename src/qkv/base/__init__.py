"""The basis of all packages: errors, configuration, seeds, hardware, files. Imports nothing else of qkv."""
