"""The pictures beside a table: curves, forest, sensitivity."""
