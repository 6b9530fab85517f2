"""Next steps for the user: the commands that follow from status, plans and outages."""
