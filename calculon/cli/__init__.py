"""The command line: one module per command, listed in :data:`calculon.cli.main.COMMANDS`.

A command module has ``configure(parser)``, which declares arguments and help, and ``run(arguments, log)``, which
returns the exit code. A module is imported only when its command runs, which keeps start-up short.
"""
