"""Machines that run these tests may be busy, so no example has a deadline."""

from hypothesis import settings

settings.register_profile("policies", deadline=None)
settings.load_profile("policies")
