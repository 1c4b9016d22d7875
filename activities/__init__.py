"""What touches the outside: one module per outside system."""
