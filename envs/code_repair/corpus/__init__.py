"""Small correct programs that tasks are made of, by file; each function stands alone. `calls` holds what they are
tried on."""
