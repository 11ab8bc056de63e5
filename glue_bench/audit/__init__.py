"""What is stored, looked at from outside: bundles for others, and whether all of it is true."""
