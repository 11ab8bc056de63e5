"""What is on disk, as typed values. No torch."""
