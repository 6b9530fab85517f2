"""Next changes of a controller: each rule decides separately, and each partition gets one change at most."""
