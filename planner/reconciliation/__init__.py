"""What a controller does next, whatever is due: every rule says its own, and each partition gets one change at most."""
