"""Where numbers come from and go to: names, URLs and files."""
