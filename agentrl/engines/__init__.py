"""Engines: what generates tokens behind the `Policy` protocol. Singular modules beside `hf` are its parts."""
