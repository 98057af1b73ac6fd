"""Starling's weights behind the interfaces of other projects. Each module imports its project; docs/weights.md describes them."""
