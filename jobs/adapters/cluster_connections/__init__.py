"""Connections to clusters that plans change, with ZooKeeper or with KRaft, behind one interface."""
