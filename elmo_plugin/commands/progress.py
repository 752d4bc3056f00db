"""Progress of a command on stderr: a bar, or lines for a log file."""

import argparse
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator, Optional

from elmo_plugin.bilm.files.text import described

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(args: argparse.Namespace, unit: str, total: Optional[int] = None) -> "tqdm":
    """
    Return a progress bar on stderr. With `--file-friendly-logging`, it prints a new line every 10
    seconds. `unit` names what the bar counts, and `total` is the final count, if known.
    """
    from tqdm import tqdm

    return tqdm(
        total=total,
        unit=unit,
        mininterval=10 if args.file_friendly_logging else 0.5,
        file=_Lines() if args.file_friendly_logging else sys.stderr,
    )


@contextmanager
def says_how_to_resume(bar: "tqdm", command: str) -> Iterator[None]:
    """
    Context manager that adds "to resume, run `command`" to the message of a `KeyboardInterrupt` or
    an `OSError`, such as a full disk. It closes `bar` first. A `FileNotFoundError` is not changed,
    because it means a missing input.
    """
    try:
        yield
    except KeyboardInterrupt:
        bar.close()
        raise KeyboardInterrupt(f"interrupted; to resume, run {command}") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        bar.close()
        raise OSError(f"{described(error)}; to resume, run {command}") from error


class _Lines:
    """File-like object for `tqdm` that prints each update of the bar to stderr as a new line."""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stderr.flush()
