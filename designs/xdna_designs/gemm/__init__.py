"""Whole-array GEMM."""
