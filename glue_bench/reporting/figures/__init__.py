"""Figures: one file each, frames -> Figure. Only these files import matplotlib, so import them where one is drawn."""
