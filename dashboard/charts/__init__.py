"""Plotly figures: one function returns one figure; none of them reads or decides anything."""
