"""Streamed GEMV."""
