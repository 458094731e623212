from typing import Any


class ChatTemplate:
    pass


def template_from_metadata(
    metadata: Any, where: str, *, bos_token: str, eos_token: str
) -> ChatTemplate | None:
    return None
