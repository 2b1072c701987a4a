"""Shell commands: no process outlives its call, and a sandbox confines it where there is one."""
