"""Clusters with ZooKeeper and KRaft clusters, behind one interface."""
