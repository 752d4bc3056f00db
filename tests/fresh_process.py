"""
Programs in processes that have imported neither AllenNLP nor this package, at little cost.

What takes seconds is to import the libraries of others. One process does that once, and is forked
for each program. Another imports no more than `elmo_plugin/bilm` needs, and starts sooner.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CORE = ("torch", "torch.distributed", "torch.optim", "numpy", "h5py", "tqdm")
ALL = (
    *CORE, "torchvision", "transformers", "spacy", "nltk", "scipy.stats", "sklearn.metrics",
    "tensorboardX", "cached_path", "fairscale", "transformers.models.auto", "_jsonnet",
)  # fmt: skip
SERVER = """
import atexit, contextlib, faulthandler, importlib, json, os, signal, sys

for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
ours = [name for name in sys.modules if name.partition(".")[0] in ("allennlp", "elmo_plugin")]
assert not ours, ours


def run(program, arguments, folder, environment, output, errors):
    for number, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(200)  # it hangs: where is in `errors`
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(*json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def python_environment():
    """Variables with which another Python finds the modules that this one finds."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path]))
    return {**os.environ, "PYTHONPATH": path}


@functools.cache
def _server(names=ALL):
    """It ends with the process that started it, whose end of the pipe is closed then."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER, *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=python_environment(),
    )


COMMAND = """
import runpy, sys
sys.argv[0] = {name!r}
runpy.run_module({name!r}.replace("-", "_"), run_name="__main__")
"""


def allennlp(*arguments, folder, **environment):
    """As `allennlp ARGUMENTS` does in a folder."""
    return run(COMMAND.format(name="allennlp"), *arguments, folder=folder, **environment)


def run_core(program, *arguments, **environment):
    """As `run` does, in a process that soon starts, for programs without AllenNLP."""
    return run(program, *arguments, server=_server(CORE), **environment)


def run(program, *arguments, folder=None, server=None, status=0, **environment):
    """
    As `python -c PROGRAM ARGUMENTS` does, with more of an environment, or less where a value is
    `None`, in another folder. PyTorch has read its variables before. The program must end with
    `status`, unless this is `None`.
    """
    server = server or _server()
    with tempfile.TemporaryDirectory() as place:
        output, errors = (Path(place) / name for name in ("output", "errors"))
        variables = _changed(python_environment(), environment)
        asked = [program, [*map(str, arguments)], str(folder or Path.cwd()), variables]
        server.stdin.write(json.dumps([*asked, str(output), str(errors)]) + "\n")
        server.stdin.flush()
        found = int(server.stdout.readline())
        assert status in (None, found), errors.read_text()[-3000:]
        return subprocess.CompletedProcess(program, found, output.read_text(), errors.read_text())


def _changed(variables, changes):
    variables = {**variables, **changes}
    return {name: value for name, value in variables.items() if value is not None}


def python(*arguments, folder=None, status=0, **environment):
    """As `python ARGUMENTS` does in a new process; the other arguments are those of `run`."""
    child = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=_changed(os.environ, environment),
        capture_output=True,
        text=True,
    )
    assert status in (None, child.returncode), child.stderr[-3000:]
    return child


# Stands in PATH for a command: hands the command to the server, whose pipes are open in it.
STAND_IN = """#!{python} -SE
import json, os, sys
streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2)]
asked = [{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ), *streams]
os.write({pipes[0]}, (json.dumps(asked) + "\\n").encode())
sys.exit(int(open({pipes[1]}).readline()) != 0)
"""


def commands_in(folder):
    """
    Write scripts `allennlp` and `elmo-plugin` that run in the server, in a new folder. Return a
    `PATH` that begins with it, and the pipes that they need open.
    """
    Path(folder).mkdir()
    places = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    pipes = ()
    if Path("/proc/self/fd").exists():  # otherwise the installed ones run
        pipes = _server().stdin.fileno(), _server().stdout.fileno()
        for name in ("allennlp", "elmo-plugin"):
            program = COMMAND.format(name=name)
            path = Path(folder, name)
            path.write_text(STAND_IN.format(python=sys.executable, program=program, pipes=pipes))
            path.chmod(0o755)
    return os.pathsep.join(places), pipes
