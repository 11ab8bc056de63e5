"""What is shown: pages and tables as values, and how they are written."""
