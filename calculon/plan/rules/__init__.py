"""Rules for valid executions: a module for each axis of parallelism or subject, all in one form."""
