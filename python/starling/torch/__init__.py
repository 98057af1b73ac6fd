"""Models of torch on Starling's servers. Needs torch (Debian: python3-torch)."""

from .dense import DenseParameters
from .embedding import EmbeddingBag, EmbeddingBagCollection
from .optimizer import Optimizer
from .pipeline import Pipeline
from .serving import export, publish

__all__ = ["DenseParameters", "EmbeddingBag", "EmbeddingBagCollection", "Optimizer", "Pipeline", "export", "publish"]
