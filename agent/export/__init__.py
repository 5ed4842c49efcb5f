"""The store's history as Parquet files."""
