"""Reads data sets and weights in the forms that people have them, and writes the ones that training reads."""
