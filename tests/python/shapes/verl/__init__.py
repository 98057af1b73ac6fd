"""The shape of verl."""
