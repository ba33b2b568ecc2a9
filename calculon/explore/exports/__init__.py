"""What a page gives to take along: files, and the commands that say the same."""
