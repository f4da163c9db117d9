"""The command ``rmq completion``."""

from __future__ import annotations

import os

import click

from rmq.cli.command import CONTEXT
from rmq.cli.completion.shells import SHELLS, script

__all__ = ["completion"]

PROGRAMS = ["rmq", "mqadmin"]


@click.command(context_settings=CONTEXT)
@click.argument("shell", type=click.Choice(list(SHELLS)), required=False)
def completion(shell: str | None) -> None:
    """Print what makes a shell complete rmq and mqadmin, names of the cluster included.

    \b
    bash, in ~/.bashrc:                   eval "$(rmq completion bash)"
    zsh, in ~/.zshrc, behind compinit:    eval "$(rmq completion zsh)"
    fish, once:   rmq completion fish > ~/.config/fish/conf.d/rmq.fish
    """
    if shell is None:
        shell = os.path.basename(os.environ.get("SHELL", ""))
        if shell not in SHELLS:
            raise click.UsageError(f"which shell? Give {', '.join(SHELLS)}", click.get_current_context())
    click.echo(script(shell, PROGRAMS))
