"""What the user should do next: the doctor's checks, and the commands that follow from status, plans and outages."""
