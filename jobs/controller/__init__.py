"""The resident controller: reads the cluster, decides, writes and sends control requests in cycles."""
