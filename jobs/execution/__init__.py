"""What touches the cluster: commits in their modes, cancellation, throttles."""
