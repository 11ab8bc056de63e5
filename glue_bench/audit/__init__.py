"""What is stored, looked at from outside: why a cell runs again, bundles for others, and whether all of it is true."""
