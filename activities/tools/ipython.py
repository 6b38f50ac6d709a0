"""Drives a Jupyter kernel. Runs inside the sandbox, for as long as the shell that started it.

Reads requests from standard input, each a line of base64 of a JSON object, and answers each with a line: the
request's mark, then JSON. Before that it says when it will be heard of again. The kernel is started by the first request, and again by the first after its end.
"""
import base64
import ctypes
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

START_SECONDS = 60
INTERRUPT_SECONDS = 5
INTERRUPT_EVERY = 0.5
# How long output may be missing after the kernel has said that it is done: a flood may lose messages.
QUIET_SECONDS = 1
# How late this process may be by itself. One that is stopped, by the code it runs, is killed then.
LATE_SECONDS = 10
POLL_SECONDS = 0.2
EXIT_SECONDS = 5
SHOWN_CHARACTERS = 16000
PR_SET_CHILD_SUBREAPER = 36
# Marks what a kernel starts, for the next driver to find should this one be killed.
MARK = 'ROLLOUT_KERNEL'
# The longest path of a Unix socket is 107 bytes; the kernel's files have names of up to 20.
LONGEST_FOLDER = 80
# Halves of surrogate pairs, which are no characters: no message may hold them.
HALVES = re.compile('[\ud800-\udfff]')
COLOURS = re.compile(r'\x1b\[[0-9;?]*[ -/]*[@-~]')
# The first of these that a display has is shown.
SHOWN_TYPES = ('text/plain', 'text/markdown', 'text/latex', 'application/json', 'text/html')
EXTENSIONS = {'image/png': 'png', 'image/jpeg': 'jpg', 'image/gif': 'gif', 'image/webp': 'webp',
              'image/svg+xml': 'svg', 'application/pdf': 'pdf'}

MISSING = None
try:
    import psutil
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager
    if importlib.util.find_spec('ipykernel') is None:
        MISSING = 'ipykernel'
except ModuleNotFoundError as error:
    MISSING, KernelManager = error.name, object


class Output:
    """Text of bounded length: the first half of the bound and the last."""

    def __init__(self):
        self.head, self.tail, self.total = '', '', 0

    def add(self, text):
        self.total += len(text)
        half = SHOWN_CHARACTERS // 2
        room = half - len(self.head)
        self.head += text[:room]
        self.tail = (self.tail + text[room:])[-half:]

    def text(self):
        left_out = self.total - len(self.head) - len(self.tail)
        if left_out == 0:
            return self.head + self.tail
        return '%s\n[... %d characters left out ...]\n%s' % (self.head, left_out, self.tail)


class Manager(KernelManager):
    @property
    def kernel_spec(self):
        # The launcher by its path: with -m, modules of the workspace would come before the kernel's own.
        launcher = importlib.util.find_spec('ipykernel_launcher').origin
        argv = [sys.executable, launcher, '-f', '{connection_file}', '--colors=NoColor',
                '--HistoryManager.hist_file=:memory:',
                # `!program` would run on a terminal, and wait there for who types.
                '--IPKernelApp.exec_lines=get_ipython().system = get_ipython().system_raw',
                '--IPKernelApp.exec_lines=exec(open(%r).read(), %r)'
                % (os.path.join(self.folder, 'echo.py'), {'FOLDER': self.folder, 'SIZE': SHOWN_CHARACTERS})]
        return KernelSpec(argv=argv, display_name='Python', language='python')


class Kernel:
    def __init__(self, workspace):
        self.workspace = workspace
        places = [os.environ.get(name, '') for name in ('HOME', 'TMPDIR')]
        place = next((place for place in places
                      if 0 < len(place.encode()) < LONGEST_FOLDER - 20 and os.access(place, os.W_OK)), '/tmp')
        self.folder = tempfile.mkdtemp(prefix='.kernel-', dir=place)
        self.log = os.path.join(self.folder, 'log')
        self.manager = Manager(transport='ipc', connection_file=os.path.join(self.folder, 'k.json'))
        self.manager.folder = self.folder
        with open(os.path.join(self.folder, 'echo.py'), 'w') as script:
            script.write(ECHO)  # ipython-echo.py, put before this file
        self.received = {'stdout': 0, 'stderr': 0}
        # A flood may lose messages: what of an earlier cell never came is not this cell's.
        self.flooded = False
        env = dict(os.environ, IPYTHONDIR=self.folder, JUPYTER_CONFIG_DIR=self.folder,
                   JUPYTER_DATA_DIR=self.folder, JUPYTER_RUNTIME_DIR=self.folder, JUPYTER_PLATFORM_DIRS='1')
        env[MARK] = workspace
        with open(self.log, 'wb') as log:
            self.manager.start_kernel(env=env, cwd=workspace, stdout=subprocess.DEVNULL, stderr=log)
        self.client = self.manager.client()
        self.client.start_channels(stdin=False, hb=False)

    def ready(self):
        self.client.wait_for_ready(timeout=START_SECONDS)

    def alive(self):
        process = self.manager.provisioner.process if self.manager.provisioner else None
        # One that is on its way out has no command line any more, and runs nothing: its end is waited for.
        if process and process.poll() is None and not command_line(process.pid):
            try:
                process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        return self.manager.is_alive()

    def last_words(self):
        """How the process ended, and what it wrote last that no cell shows."""
        process = self.manager.provisioner.process if self.manager.provisioner else None
        code = process.poll() if process else None
        how = 'it did not answer' if code is None else (
            'killed by signal %d' % -code if code < 0 else 'exit status %d' % code)
        try:
            with open(self.log, 'rb') as log:
                log.seek(max(0, os.path.getsize(self.log) - 2000))
                return how, log.read().decode('utf-8', 'replace').strip()
        except OSError:
            return how, ''  # the code removed it

    def execute(self, request, output):
        """Runs code to its end: `ok`, `error`, `left`, or at its timeout `interrupted`, `stuck`; or `died`."""
        if self.flooded:
            self.received = {name: max(n, self.printed(name)[0]) for name, n in self.received.items()}
        asked = self.client.execute(request['code'], allow_stdin=False)
        deadline = time.monotonic() + request['seconds']
        reply, interrupts, quiet_since, dead = None, 0, None, False
        shows = Shows(request, output)
        while True:
            now = time.monotonic()
            if now > deadline + interrupts * INTERRUPT_EVERY:
                if interrupts * INTERRUPT_EVERY >= INTERRUPT_SECONDS:
                    return 'stuck'
                say_within(INTERRUPT_SECONDS)
                self.manager.interrupt_kernel()
                # Another thread may have got the signal, and the one that waits (await) must wake up to act on it.
                self.client.kernel_info()
                interrupts += 1
            try:
                message = self.client.get_iopub_msg(timeout=POLL_SECONDS)
            except queue.Empty:
                if dead:
                    self.show_unsent(output)
                    return 'died'
                dead = not self.alive()  # what it sent before may arrive yet
                reply = reply or self.reply(asked, 0)
                if reply:
                    quiet_since = quiet_since or now
                    if now - quiet_since > QUIET_SECONDS:
                        break
                continue
            quiet_since = None
            content = message['content']
            if message['msg_type'] == 'stream':
                self.received[content['name']] += len(content['text'])
            if message['msg_type'] != 'status':
                shows.message(message['msg_type'], content)
            elif content['execution_state'] == 'idle' and message['parent_header'].get('msg_id') == asked:
                break
        reply = reply or self.reply(asked, QUIET_SECONDS) or {}
        self.flooded = output.total > SHOWN_CHARACTERS
        for page in reply.get('payload', []):
            if page.get('source') == 'page':
                shows.data(page['data'])
            if page.get('source') == 'ask_exit' and not page.get('keepkernel'):
                return 'left'
        return 'interrupted' if interrupts else reply.get('status', 'error')

    def show_unsent(self, output):
        """What it printed and could not send any more."""
        for name, received in self.received.items():
            total, text = self.printed(name)
            if total > received:
                output.add(text[received - total:])

    def printed(self, name):
        """How many characters it has printed to a stream in all, and the last of them."""
        try:
            with open(os.path.join(self.folder, name), encoding='utf-8', errors='replace', newline='') as file:
                left_out, text = file.read().split('\n', 1)
            return int(left_out) + len(text), text
        except (OSError, ValueError):
            return 0, ''  # it had not begun, or was killed while it wrote

    def reply(self, asked, seconds):
        until = time.monotonic() + seconds
        while True:
            try:
                message = self.client.get_shell_msg(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                return None
            if message['parent_header'].get('msg_id') == asked:
                return message['content']

    def end(self):
        end_descendants()
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Shows:
    """What a cell shows, as text; images become files of the workspace."""

    def __init__(self, request, output):
        self.request, self.output, self.files = request, output, 0

    def message(self, kind, content):
        if kind == 'stream':
            self.output.add(content['text'])
        elif kind in ('execute_result', 'display_data', 'update_display_data'):
            self.data(content['data'])
        elif kind == 'error':
            self.line('\n'.join(content['traceback']))

    def data(self, bundle):
        shown = next((name for name in SHOWN_TYPES if name in bundle), None)
        if shown:
            text = bundle[shown]
            self.line(text if isinstance(text, str) else json.dumps(text))
        for name in bundle:
            if name in EXTENSIONS:
                self.line('[%s %s]' % (name, self.save(bundle[name], name)))
            elif not shown:
                self.line('[%s, not shown]' % name)

    def line(self, text):
        text = COLOURS.sub('', text)
        before = self.output.tail or self.output.head
        self.output.add(('\n' if before and not before.endswith('\n') else '') + text + '\n')

    def save(self, value, name):
        try:
            data = value.encode() if name == 'image/svg+xml' else base64.b64decode(''.join(value.split()), validate=True)
        except (ValueError, TypeError, AttributeError):
            return 'could not be saved: it is no image'
        try:
            os.makedirs(os.path.join(self.request['workspace'], 'images'), exist_ok=True)
            while True:
                self.files += 1
                path = 'images/ipython-%s-%d.%s' % (self.request['call_id'], self.files, EXTENSIONS[name])
                try:
                    with open(os.path.join(self.request['workspace'], path), 'xb') as file:
                        file.write(data)
                    return 'saved as %s' % path
                except FileExistsError:
                    continue
        except OSError as error:
            return 'could not be saved: %s' % error.strerror


def end_descendants():
    """Kills all that the kernel has started; as subreaper, this process is an ancestor of every one."""
    me = psutil.Process()
    for _ in range(500):
        living = [process for process in me.children(recursive=True) if not reaped(process)]
        if not living:
            return
        for process in living:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        time.sleep(0.01)


def reaped(process):
    """True if it has ended; orphans that came here are waited for."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return False
        if process.ppid() == os.getpid() and not is_kernel(process.pid):
            os.waitpid(process.pid, os.WNOHANG)
    except (psutil.NoSuchProcess, ChildProcessError):
        pass
    return True


def command_line(pid):
    try:
        with open('/proc/%d/cmdline' % pid, 'rb') as file:
            return file.read()
    except OSError:
        return b''


def is_kernel(pid):
    """The manager waits for its own."""
    provisioner = kernel.manager.provisioner if kernel else None
    return bool(provisioner and provisioner.process and provisioner.process.pid == pid)


def end_left_overs(workspace):
    """What an earlier driver of this workspace left when it was killed."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == workspace:
                process.kill()
        except (psutil.Error, OSError):
            pass


kernel = None


def answer(request):
    global kernel
    if MISSING:
        return {'missing': '%s has no module %s' % (sys.executable, MISSING)}
    if HALVES.search(request['code']):
        text = 'the code holds half of a surrogate pair, which is no character: it was not run'
        return {'status': 'ok', 'exitCode': 1, 'text': text}
    output, notes, restarted = Output(), [], False
    for process in psutil.Process().children():
        reaped(process)
    if kernel and not kernel.alive():
        notes.append('[the kernel had ended (%s): this is a new one, without its variables]'
                     % kernel.last_words()[0])
        restarted = True
        end()
    try:
        if not kernel:
            say_within(START_SECONDS)
            end_left_overs(request['workspace'])
            kernel = Kernel(request['workspace'])
            kernel.ready()
    except (RuntimeError, OSError) as error:
        how, words = kernel.last_words() if kernel else (error, '')
        end()
        text = '[the kernel could not be started: %s]' % how
        return {'status': 'restarted', 'exitCode': None, 'text': words + '\n' + text if words else text}
    say_within(request['seconds'])
    try:
        end_of_cell = kernel.execute(request, output)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # The code can say anything in the kernel's name.
        notes.append('[the kernel said what cannot be understood (%s): it was ended]' % error)
        end_of_cell = 'garbled'
    if end_of_cell in ('interrupted', 'stuck'):
        notes.append('[interrupted after %g s]' % request['seconds'])
    if end_of_cell == 'died':
        notes.append('[the kernel died (%s)]' % kernel.last_words()[0])
    if end_of_cell == 'left':
        notes.append('[the code has ended the kernel]')
    if end_of_cell in ('stuck', 'died', 'left', 'garbled'):
        restarted = True
        notes.append('[the next call has a new kernel, without the variables]')
        end()
    status = 'timeout' if end_of_cell in ('interrupted', 'stuck') else 'restarted' if restarted else 'ok'
    shown = HALVES.sub('\ufffd', output.text())
    text = '\n'.join(part for part in [shown[:-1] if shown.endswith('\n') else shown] + notes if part)
    return {'status': status, 'exitCode': {'ok': 0, 'left': 0, 'error': 1}.get(end_of_cell), 'text': text}


def end():
    global kernel
    if kernel:
        say_within(EXIT_SECONDS)
        kernel.end()
    kernel = None


def say_within(seconds):
    say('within %d' % (seconds + LATE_SECONDS))


def say(line):
    sys.stdout.write(line + '\n')
    sys.stdout.flush()


def main():
    # A session of its own: what interrupts the shell is not meant for the kernel.
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        request = json.loads(base64.b64decode(line).decode('utf-8'))
        say(request['mark'] + json.dumps(answer(request)))
    if kernel:
        kernel.end()


main()
