"""Plans, changes, snapshots and ledgers as tables hold them: read, stored, typed."""
