"""Find modules that a command line names."""

from importlib.util import find_spec


def module_exists(name: str) -> bool:
    """
    Return whether a module can be found. Its parent packages are imported, and errors in their code
    are raised.
    """
    if not name or name.startswith("."):
        return False
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        # Another module that a parent package imports may be missing instead.
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        return False
