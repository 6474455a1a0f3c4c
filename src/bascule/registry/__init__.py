"""Registries of images: what they say of an image that nobody has pulled, by the OCI distribution specification."""
