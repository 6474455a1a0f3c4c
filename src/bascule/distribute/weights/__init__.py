"""Copies a model's files from one node to the others, verified, and says whether nodes hold the same ones."""
