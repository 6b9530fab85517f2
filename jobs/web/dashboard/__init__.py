"""The dashboard: a read-only Streamlit app over the tables."""
