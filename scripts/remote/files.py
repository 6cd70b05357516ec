"""Files beside the scripts, and files that are written whole."""

import os

HERE = os.path.dirname(os.path.abspath(__file__))


def text_of(name):
    """Text of a file that came with the scripts."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def write_whole(path, text):
    """Writes a file whole, or not at all."""
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)
