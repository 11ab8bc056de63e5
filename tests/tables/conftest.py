"""Experiments on disk, made by hand."""

from stored import bench, lasting_bench, new_bench

__all__ = ["bench", "lasting_bench", "new_bench"]
