"""``python -m exaul``: the command ``exaul``, also where the package is not installed."""

from exaul.commands.main import entry

if __name__ == "__main__":
    entry()
