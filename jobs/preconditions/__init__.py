"""Whether a change may still be written: what is in ZooKeeper now, compared with what was planned."""
