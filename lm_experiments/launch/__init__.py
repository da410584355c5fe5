"""Where and how runs are trained: processes, devices, machines, and how each process ended."""
