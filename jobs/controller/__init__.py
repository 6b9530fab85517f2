"""From one look at the cluster to the next: snapshot, plan and commit in one process."""
