"""``python -m calculon``."""

import sys

if __name__ == "__main__":
    try:
        from calculon.cli.main import main

        sys.exit(main())
    except KeyboardInterrupt:  # before there is anything that could handle it
        sys.stderr.write("calculon: interrupted; nothing was written\n")
        sys.exit(130)
