"""The order of resourceVersions: those of one resource type compare as integers (KEP-5504)."""


def is_newer(version: str, than: str) -> bool:
    """Return whether a resourceVersion is newer; those of one resource type compare as integers.

    What is no integer counts as newer, so that a server with versions of another kind is followed
    rather than ignored.
    """
    if not version or not than:
        return bool(version)
    try:
        return int(version) > int(than)
    except ValueError:
        return version != than


def is_lower(version: str, than: str) -> bool:
    """Return whether a resourceVersion is below another one; False for what is no integer."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
