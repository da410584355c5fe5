"""What a command of ``scripts/`` does once its words are read, and how it answers bad input."""

import os

# Pictures are files. A notebook's backend, which its shell hands on, may not be importable here.
os.environ["MPLBACKEND"] = "Agg"
