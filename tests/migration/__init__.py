"""Tests of the migration from layout 1 to layout 2."""
