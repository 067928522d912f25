"""A local copy of objects: reflectors list and watch, stores keep and index."""
