"""The demo: a story on embedded servers, and a producer that writes all through it."""
