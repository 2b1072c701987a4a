"""What a person may set, and where each value comes from.

The law: texts and mappings in, frozen values out. Nothing here reads a file or the environment;
what is not understood is refused, with its place and what may have been meant.
"""
