"""Texts: lists of names are shortened, and foreign texts are made safe to show."""
