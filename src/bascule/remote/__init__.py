"""The only door to the nodes."""
