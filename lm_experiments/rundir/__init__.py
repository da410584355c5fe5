"""The format of run and sweep directories: names, schema, readers and atomic writers."""
