"""Copies of docker images from node to node: only the layers that a target lacks travel."""
