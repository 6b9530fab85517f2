"""Clusters that plans are carried out in, with ZooKeeper or with KRaft, behind one interface."""
