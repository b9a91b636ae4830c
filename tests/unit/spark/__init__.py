"""Tests of the Spark integration that need no Spark session."""
