"""The helper that runs on the nodes: these modules are joined and sent to their python3 (3.9 or newer), see bundle.py.

They import nothing but the standard library and each other, one module's names are unknown to no other, and nothing
of them is left on a node.
"""
