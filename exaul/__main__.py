"""``python -m exaul`` runs the command ``exaul``, even if the package is not installed."""

from exaul.commands.main import entry

if __name__ == "__main__":
    entry()
