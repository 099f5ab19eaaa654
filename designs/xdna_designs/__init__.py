"""Dataflow designs for the array, and everything between them and register words."""
