"""What the user should do next: the commands that follow from status, plans and outages."""
