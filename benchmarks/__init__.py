"""The measurements of each claim of speed or learning, and their commands.

This folder is a package, because a package of the same name that another project installs (pyarrow 17 does) would hide
a mere folder.
"""
