"""A fleet of workers that is killed, stopped, cut off and upgraded; a checker counts the damage."""
