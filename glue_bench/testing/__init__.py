"""The contract that every variant meets, and the tiny encoders on which it is checked."""
