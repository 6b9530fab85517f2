"""Who is told what: notices, from what was decided and who is registered."""
