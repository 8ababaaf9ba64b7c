"""A fleet of engines on a virtual clock, to judge routing by real sessions within a minute."""
