"""What pages say, in English and Chinese: a table a page."""
