"""Values as the store holds them: records, failures, dead letters and the names of keys."""
