"""Bringing images and weights to the nodes."""
