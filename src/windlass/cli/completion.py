"""`windlass completion`: Tab for the shell."""

import click
from click.shell_completion import get_completion_class

from windlass.cli import exit_codes as exits

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "windlass"
VARIABLE = "_WINDLASS_COMPLETE"


@click.command(
    epilog="""\b
To have it for good:
  bash   windlass completion bash >> ~/.bashrc
  zsh    windlass completion zsh >> ~/.zshrc
  fish   windlass completion fish > ~/.config/fish/completions/windlass.fish"""
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        click.get_current_context().exit(exits.FAILED)
    click.echo(kind(click.Command(PROGRAM), {}, PROGRAM, VARIABLE).source())
