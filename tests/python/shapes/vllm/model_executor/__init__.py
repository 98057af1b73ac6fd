"""The shape of vLLM."""
