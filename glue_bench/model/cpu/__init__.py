"""Kernels that only CPUs need."""
