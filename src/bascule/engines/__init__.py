"""How each engine speaks: one module and one lore file per engine."""
