"""What people read, rendered from the data of records and survey."""
