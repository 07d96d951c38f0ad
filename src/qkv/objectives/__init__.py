"""One file per training task: the corruption and its loss together."""
