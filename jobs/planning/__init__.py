"""From a question to a stored plan, one file a question. Nothing here touches a cluster."""
