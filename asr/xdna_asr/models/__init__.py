"""Models, each written once on the op set."""
