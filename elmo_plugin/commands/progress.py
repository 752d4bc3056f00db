"""Progress of a command on stderr: a bar, or lines for a log file."""

import argparse
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator, Optional

from elmo_plugin.bilm.files.text import described

if TYPE_CHECKING:
    from tqdm import tqdm


@contextmanager
def progress_bar(
    args: argparse.Namespace, unit: str, resume: str, total: Optional[int] = None
) -> Iterator["tqdm"]:
    """
    Context manager that yields a progress bar on stderr. With `--file-friendly-logging`, it prints
    a new line every 10 seconds. `unit` names what the bar counts, and `total` is the final count,
    if known.

    It adds "to resume, run `resume`" to the message of a `KeyboardInterrupt` or an `OSError`, such
    as a full disk. A `FileNotFoundError` is not changed, because it means a missing input.
    """
    from tqdm import tqdm

    every, file = (10, _Lines()) if args.file_friendly_logging else (0.5, sys.stderr)
    with tqdm(total=total, unit=unit, mininterval=every, file=file) as bar:
        try:
            yield bar
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; to resume, run {resume}") from None
        except FileNotFoundError:
            raise
        except OSError as error:
            raise OSError(f"{described(error)}; to resume, run {resume}") from error


class _Lines:
    """File-like object for `tqdm` that prints each update of the bar to stderr as a new line."""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stderr.flush()
