"""Everything that changes the cluster: commits in their modes, cancellation and throttles."""
