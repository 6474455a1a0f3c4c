"""`bascule probe`: what engines in images, environments, wheels and registries can serve."""
