"""One module for each outside thing: ZooKeeper, brokers, Delta, Spark, embedded servers."""
