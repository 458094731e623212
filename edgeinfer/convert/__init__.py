"""A Hugging Face folder to a GGUF file: tensors streamed, names and metadata translated.

No code of the folder is run, no pickle is read, and a configuration that is not understood to the
last key that changes numbers is refused.
"""

from edgeinfer.convert.conversion import convert
from edgeinfer.convert.output import Conversion

__all__ = ["Conversion", "convert"]
