"""Text that leaves the package: one writer each for CSV, Markdown and the terminal.

Names of classes, groups, methods, files and columns come from other people's files. Each writer
makes them harmless for what reads its text: a spreadsheet, a Markdown renderer, a terminal.
"""
