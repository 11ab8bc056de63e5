"""Experiments on disk, made by hand."""

from stored import bench, new_bench

__all__ = ["bench", "new_bench"]
