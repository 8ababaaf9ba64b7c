"""Routing rules of other systems, written from their documentation, and our own beside them."""
