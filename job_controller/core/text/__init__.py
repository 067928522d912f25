"""Texts of others are made safe to show."""
