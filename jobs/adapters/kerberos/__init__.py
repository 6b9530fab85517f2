"""Kerberos: logins with a keytab or a ticket cache, and SASL's GSSAPI for connections to brokers and ZooKeeper."""
