"""Pages of the public web; the network around this machine cannot be reached."""
