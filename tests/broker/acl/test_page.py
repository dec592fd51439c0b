"""The table of docs/security.md."""

from tests.broker.acl.page import PAGE, page


def test_page_is_fresh() -> None:
    """The page has the rows of the code; `python -m tests.broker.acl.page` writes them."""
    assert PAGE.read_text(encoding="utf-8") == page()
