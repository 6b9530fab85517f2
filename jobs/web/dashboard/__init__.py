"""The dashboard: a Streamlit page over the tables, which reads and never writes."""
