"""Leadership: elections after failures and on request, drains, recoveries, leader balance."""
