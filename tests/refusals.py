"""What a command says of input that it cannot use."""

from exaul.commands.main import main


def refusal_of(argv, capsys, program=main):
    """Run a command, which must end with status 2 and print one line, on stderr; return that line."""
    assert program(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err
