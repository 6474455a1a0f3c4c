"""`bascule fit`: whether a model fits on machines, in which layouts, and how fast it can be at best."""
