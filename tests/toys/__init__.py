"""Small environments for tests; a package, so that worker processes can import them."""
