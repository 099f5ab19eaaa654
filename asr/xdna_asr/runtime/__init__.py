"""Devices that run models."""
