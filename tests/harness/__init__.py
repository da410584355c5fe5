"""What tests share to run commands: in this process, as processes, and with faults."""
