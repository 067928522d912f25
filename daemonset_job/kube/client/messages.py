"""Texts of a server, made fit for logs, conditions and terminals."""

# 256 characters say what happened.
MESSAGE_LIMIT = 256


def clean_text(text: str, limit: int) -> str:
    """Return `text` on one line, without control characters, at most `limit` characters long."""
    if len(text) > limit * 4:  # bound the work, not only the result
        text = text[: limit * 4]
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
