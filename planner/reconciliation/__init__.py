"""What a controller does next: each rule decides separately, and each partition gets one change at most."""
