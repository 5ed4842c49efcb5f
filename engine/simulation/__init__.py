"""Engines without a model: a cost model, traces, and workloads."""
