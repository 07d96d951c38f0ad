"""One file per system: its paper, its config, its module, its published sizes."""
