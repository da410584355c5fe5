"""What a command of ``scripts/`` does once its words are read, and how it answers bad input."""
