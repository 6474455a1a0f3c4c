"""How fast is it, against the physical limit?"""
