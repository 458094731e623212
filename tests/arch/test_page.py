"""The page of architectures says what the code has."""

from tools.architectures_page import PAGE, page


def test_the_table_is_that_of_the_code() -> None:
    text = PAGE.read_text()
    assert text == page(text), "run python tools/architectures_page.py"


def test_another_table_would_be_found() -> None:
    text = PAGE.read_text().replace("| `llama` |", "| `lama` |")
    assert "| `llama` |" in page(text)
