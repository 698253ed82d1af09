"""Timings; nothing here is a test."""
