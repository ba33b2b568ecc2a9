"""Changes of settings in the text of a user's launch file, which otherwise stays byte for byte."""
