"""The command line: one module per command, listed in :data:`calculon.cli.main.COMMANDS`.

A command module has ``configure(parser)``, which declares arguments and help, and ``run(arguments, log)``, which
returns the exit code. Modules are imported when their command runs, so that every command starts as fast as it can.
"""
