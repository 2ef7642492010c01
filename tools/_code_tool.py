"""The tool `python` over sessions of a sandbox, as a model reads it; `python_sandbox` and `e2b` make it."""

from typing import Protocol

from agentrl.tool import CodeRunner, Convention, describe_code, with_print, without_infra_error


class Config(Protocol):
    """The options that the tool reads; see `agentrl.tools.python_sandbox.Config`."""

    @property
    def stateful(self) -> bool:
        """The calls of an episode share a session."""
        ...

    @property
    def convention(self) -> Convention:
        """Form of the text in which the model reads a result."""
        ...


class CodeTool:
    """The tool. With `stateful`, the calls of an episode share a session of the sandbox, else each call has its own.

    After a run that took too long, or that failed in the sandbox, the next call gets a new session. The calls of one
    turn run one after another.

    Attributes:
        backend: the sandbox that runs the code.
    """

    name = "python"

    def __init__(self, runner: CodeRunner, config: Config) -> None:
        self.backend = runner.backend
        self._convention, self._print_last = config.convention, getattr(config, "print_last", False)
        self._session = runner.session(stateful=config.stateful)

    def __call__(self, code: str) -> str:
        """Run Python code and read what it prints.

        Args:
            code: the code; variables are kept for the next call.
        """
        result = without_infra_error(self._session.run(with_print(code) if self._print_last else code))
        return describe_code(result, self._convention)

    def reset(self) -> None:
        """End the session, and with it all variables; the next call starts a new one."""
        self._session.close()

    def close(self) -> None:
        """End the session."""
        self._session.close()


class StatelessCodeTool(CodeTool):
    """The tool without `stateful`, as a model reads it."""

    def __call__(self, code: str) -> str:
        """Run Python code and read what it prints.

        Args:
            code: the code; every call starts without the variables of earlier calls.
        """
        return super().__call__(code)


def code_tool(runner: CodeRunner, config: Config) -> CodeTool:
    """The tool for a configuration."""
    return (CodeTool if config.stateful else StatelessCodeTool)(runner, config)
