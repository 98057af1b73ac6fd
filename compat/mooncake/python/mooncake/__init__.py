"""The Python interface of Mooncake's Transfer Engine on starling.transfer: see mooncake.engine."""
