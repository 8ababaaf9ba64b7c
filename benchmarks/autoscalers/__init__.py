"""Rules for how many replicas there should be: other systems' and our own."""
