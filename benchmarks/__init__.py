"""What is claimed fast, each with its command. A package, because others install one of the same name (pyarrow 17)."""
