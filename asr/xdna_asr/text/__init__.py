"""Vocabularies."""
