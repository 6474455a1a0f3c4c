"""Environments with trimmed real engines, as far as bascule looks at them."""

from probe_views.views_cases import files_of


def install(folder, *names):
    """A trimmed engine as an environment has it."""
    for path, data in files_of(*names).items():
        place = folder / "lib/python3.12/site-packages" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    release = names[0].rpartition("-")[2]
    (folder / f"lib/python3.12/site-packages/vllm-{release}.dist-info").mkdir(exist_ok=True)
    (folder / "bin").mkdir()
    (folder / "bin/python").touch(0o755)
