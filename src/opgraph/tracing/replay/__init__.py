"""Graphs that torch captures (fx, Dynamo, export), run again under the recorder."""
