"""Models of torch on Starling's servers. Needs torch (Debian: python3-torch)."""

from .dense import DenseParameters
from .embedding import EmbeddingBag, EmbeddingBagCollection, EmbeddingCollection
from .jagged import JaggedTensor, KeyedTensor
from .optimizer import Optimizer
from .pipeline import Pipeline
from .serving import export, publish
from .torchrec import replace

__all__ = ["DenseParameters", "EmbeddingBag", "EmbeddingBagCollection", "EmbeddingCollection", "JaggedTensor", "KeyedTensor",
           "Optimizer", "Pipeline", "export", "publish", "replace"]
