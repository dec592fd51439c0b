"""A module a page: a plain function that makes what the template shows, and the routes."""
