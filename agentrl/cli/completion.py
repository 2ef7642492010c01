"""`agentrl completion bash|zsh|fish`: print the shell code that completes verbs, options, recipes, keys and runs.

bash: add eval "$(agentrl completion bash)" to ~/.bashrc.
zsh: add eval "$(agentrl completion zsh)" to ~/.zshrc, after compinit.
fish: run agentrl completion fish > ~/.config/fish/completions/agentrl.fish
"""

from collections.abc import Sequence

from agentrl.cli._parser import Parser


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl completion", __doc__)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    shell = parser.parse_args(words).shell
    from argcomplete.shell_integration import shellcode

    print(shellcode(["agentrl"], shell=shell))
    return 0
