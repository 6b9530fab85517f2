"""Who leads: elections after failures and on request, drains, recoveries, balance."""
