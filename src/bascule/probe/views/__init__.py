"""Views of an engine's files: a folder on a node, an environment, a wheel, an image, layers of a registry."""
