"""The Python process behind the `python` tool; it runs inside the sandbox, on whatever Python 3 is there.

Usage: ``python3 interpreter.py FOLDER``. A line ``NAME`` on the pipe FOLDER/requests runs FOLDER/NAME.py with
the variables of the calls before; all output, that of child processes too, goes to FOLDER/NAME.out, and the
line ``NAME EXIT_CODE`` to the pipe FOLDER/answers. Only the standard library, and nothing newer than 3.6.
"""

import ast
import linecache
import os
import signal
import sys
import traceback


def serve(folder):
    """Run requests until the process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[0] = ""
    owner = os.getpid()
    with open(os.path.join(folder, "pid"), "w") as file:
        file.write(str(owner))
    variables = {"__name__": "__main__"}
    answers = os.open(os.path.join(folder, "answers"), os.O_RDWR)
    with os.fdopen(os.open(os.path.join(folder, "requests"), os.O_RDWR)) as requests:
        while True:
            name = requests.readline().strip()
            redirect(os.path.join(folder, name + ".out"))
            with open(os.path.join(folder, name + ".py"), encoding="utf-8", errors="surrogatepass") as file:
                exit_code = run(file.read(), f"<{name}>", variables)
            if os.getpid() != owner:  # a fork that the code forgot to end
                os._exit(exit_code)
            os.write(answers, f"{name} {exit_code}\n".encode())


def redirect(path):
    """Send what this process and its children print from now on to a file."""
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def run(source, filename, variables):
    """Run code, print the value of a last expression and any exception, return an exit code."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exit_code = 0
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        evaluate(source, filename, variables)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        shown = error.__traceback__
        while shown and shown.tb_frame.f_code.co_filename == __file__:
            shown = shown.tb_next
        traceback.print_exception(type(error), error, shown)
        exit_code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the code closed or replaced it
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    return exit_code


def evaluate(source, filename, variables):
    """Run statements; the last one's value is printed where it is an expression that has one."""
    tree = ast.parse(source, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, filename, "exec"), variables)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), filename, "eval"), variables)
        if value is not None:
            print(repr(value))


if __name__ == "__main__":
    serve(sys.argv[1])
