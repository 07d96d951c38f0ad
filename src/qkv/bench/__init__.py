"""Speed side by side: qkv and its peers on the same sentences, each in a process of its own, one round after the other."""
