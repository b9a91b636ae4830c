"""Topics: messages that several queues receive."""
