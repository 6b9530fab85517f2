"""HTTP: a server for one page of text, which is rendered for each request."""
