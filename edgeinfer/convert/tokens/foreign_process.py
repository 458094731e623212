"""What runs in the process that foreign.py starts: reads a request, writes an answer, as JSON.

It imports nothing of this package, which would cost more than the work itself.
"""

import json
import sys
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return {"found": one answer a text}, or {"error": why there is none}.

    Args:
        request: "tokenizer", a text of JSON; "texts"; "wanted", which is "cuts" or "ids".
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(request["tokenizer"])
        if request["wanted"] == "cuts":
            return {"found": [_cut(tokenizer.pre_tokenizer, text) for text in request["texts"]]}
        encoded = (tokenizer.encode(text, add_special_tokens=False) for text in request["texts"])
        return {"found": [encoding.ids for encoding in encoded]}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library derives from it
        return {"error": str(error)}


def _cut(pre_tokenizer: Any, text: str) -> Any:
    if pre_tokenizer is None:
        return [(text, (0, len(text)))]
    return pre_tokenizer.pre_tokenize_str(text)


if __name__ == "__main__":
    asked = json.load(sys.stdin.buffer)
    sys.path[:] = asked["path"]
    sys.stdout.write(json.dumps(answer(asked)))
