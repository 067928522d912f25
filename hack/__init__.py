"""What development takes and no user needs."""
