"""What the API server refuses, as the parts of a Status: code, reason, message, field."""


class Refused(Exception):  # noqa: N818 - what the API server does with a request
    """A request that changes nothing.

    `status` is the HTTP status, `field` the cause's field, and `name` that of a missing object.
    """

    def __init__(
        self, status: int, reason: str, message: str = "", field: str = "", name: str = ""
    ) -> None:
        super().__init__(message)
        self.name = name
        self.status, self.reason, self.message = status, reason, message or reason
        self.field = field


def bad_request(message: str) -> Refused:
    """Return the refusal of a request that cannot be read."""
    return Refused(400, "BadRequest", message)


def conflict(message: str) -> Refused:
    """Return the refusal of a request about an object that is another one by now."""
    return Refused(409, "Conflict", message)


def invalid(field: str, message: str) -> Refused:
    """Return the refusal of an object with a field that may not be so."""
    return Refused(422, "Invalid", f"{field}: {message}", field)
