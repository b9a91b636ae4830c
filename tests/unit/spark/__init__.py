"""The Spark side without Spark."""
