"""Argmax that keeps the winning row."""
