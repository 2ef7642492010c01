"""`agentrl report RUN [--against RUN] [--out FILE] [--json]`: write what a run learned as one HTML page.

The page answers: what is this run, does it learn, is it healthy, what goes wrong, which steps get the credit, and what
did the policy see and say? With --against it also answers: is this run better than the other run? The page needs no
network. It is written to FILE; default: RUN/report.html. With --json, no page is written; the command prints the page's
data as one JSON object.
"""

from collections.abc import Sequence
from pathlib import Path

from agentrl.cli._parser import Parser


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl report", __doc__)
    parser.add_argument("run", type=Path, help="a run's folder, such as runs/NAME")
    parser.add_argument("--against", type=Path, metavar="RUN", help="another run, to compare with")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write; default: RUN/report.html")
    parser.add_argument("--json", action="store_true", help="print the data as one JSON object and write no page")
    arguments = parser.parse_args(words)
    from agentrl.report import run_data, write_run_page

    if arguments.json:
        if arguments.out is not None:
            raise ValueError("--json writes no page, and --out is the file of the page: leave one of them out")
        print(run_data(arguments.run, arguments.against).model_dump_json())
        return 0
    out = arguments.out or arguments.run / "report.html"
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: name the file to write, such as {out / 'report.html'}")
    if arguments.out is not None and not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}")
    size = write_run_page(arguments.run, out, arguments.against)
    print(f"{out}: {size / 1e6:.1f} MB; open it in a browser")
    return 0
