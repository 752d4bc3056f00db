"""Progress on stderr: a bar, or lines for a log."""

import argparse
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator, Optional

if TYPE_CHECKING:
    from tqdm import tqdm


def add_progress_arguments(parser: argparse.ArgumentParser) -> None:
    """`--file-friendly-logging`."""
    parser.add_argument(
        "--file-friendly-logging",
        action="store_true",
        help="progress on lines of its own, every 10 seconds",
    )


def progress_bar(args: argparse.Namespace, unit: str, total: Optional[int] = None) -> "tqdm":
    """
    # Parameters

    args : `argparse.Namespace`
        From `add_progress_arguments`.
    unit : `str`
        What is counted.
    total : `Optional[int]`, optional (default = `None`)
        How many there will be.

    # Returns

    `tqdm`
    """
    from tqdm import tqdm

    return tqdm(
        total=total,
        unit=unit,
        mininterval=10 if args.file_friendly_logging else 0.5,
        file=_Lines() if args.file_friendly_logging else sys.stderr,
    )


@contextmanager
def says_what_goes_on(bar: "tqdm", command: str) -> Iterator[None]:
    """
    # Parameters

    bar : `tqdm`
        Is closed before the message.
    command : `str`
        What goes on with the work, in words; stands in the message of what stopped it.

    # Raises

    `KeyboardInterrupt`, `OSError`
        Those of the block, which say so; an input that is not there is another matter.
    """
    try:
        yield
    except KeyboardInterrupt:
        bar.close()
        raise KeyboardInterrupt(f"interrupted: {command} goes on") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        bar.close()
        raise OSError(f"{error}; {command} goes on") from error


class _Lines:
    """For logs: a bar's states on lines of their own."""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stderr.flush()
