"""The rows and columns of a sweep's table, and the formats it is written in."""
