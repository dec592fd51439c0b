"""The articles live: each section with a mechanism as a story on virtual time, told from what happened."""
