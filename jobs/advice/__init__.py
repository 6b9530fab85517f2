"""What a user should do next: doctor's checks, and the commands that status, plans and outages lead to."""
