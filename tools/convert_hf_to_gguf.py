"""Convert a folder of transformers to GGUF: `edgeinfer convert` under the name people know."""

import sys

from edgeinfer.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["convert", *sys.argv[1:]]))
