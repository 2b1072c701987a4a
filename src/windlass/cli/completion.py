"""`windlass completion`: a script for the Tab key of a shell."""

import click
from click.shell_completion import get_completion_class

from windlass.cli.exit_codes import FAILED

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "windlass"
VARIABLE = "_WINDLASS_COMPLETE"


@click.command(
    epilog="""\b
To install it:
  bash   windlass completion bash >> ~/.bashrc
  zsh    windlass completion zsh >> ~/.zshrc
  fish   windlass completion fish > ~/.config/fish/completions/windlass.fish"""
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        click.get_current_context().exit(FAILED)
    click.echo(kind(click.Command(PROGRAM), {}, PROGRAM, VARIABLE).source())
