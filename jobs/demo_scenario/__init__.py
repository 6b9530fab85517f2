"""The demo: a scenario on embedded servers, with a producer that writes throughout."""
