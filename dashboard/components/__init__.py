"""Small browser parts that Streamlit does not have."""
