"""What commands print: their output, or the one line about input that they cannot use."""

from exaul.commands.main import main


def output_of(argv, capsys, status=0):
    """Run a command, which must end with a status; return what is printed on stdout."""
    assert main(argv) == status
    return capsys.readouterr().out


def refusal_of(argv, capsys, program=main):
    """Run a command, which must end with status 2 and print one line, on stderr; return that line."""
    assert program(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err
