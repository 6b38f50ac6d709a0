"""Runs in the kernel, before any cell. FOLDER: where to write to; SIZE: how much of it, in characters.

What is printed is written to a short file, too, at once. What a kernel sends goes through threads of its own and dies
with it. The file begins with the number of characters that it leaves out.
What no message may hold is sent in the escapes of JSON. And what programs print, which a thread reads from a pipe, is
read before a cell has ended: later it would be the next cell's, or nobody's. Code that closes its output, or has none
any more, has it again in the next cell.
"""
import codecs, fcntl, functools, json, os, select, struct, sys, termios, threading
from IPython import get_ipython
from jupyter_client.jsonutil import json_default

session = get_ipython().kernel.session
session_pack = session.pack


def pack(content):
    try:
        return session_pack(content)
    except UnicodeEncodeError:
        return json.dumps(content, default=json_default, allow_nan=False).encode()


session.pack = pack


class Echo:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.total, self.room = 0, 0

    def write(self, text):
        data, self.total = text, self.total + len(text)
        if len(text) > self.room:
            kept = text[-SIZE:]
            os.ftruncate(self.file, 0)
            data, self.room = '%d\n%s' % (self.total - len(kept), kept), 2 * SIZE
        self.room -= len(text)
        os.write(self.file, data.encode('utf-8', 'replace'))

    def flush(self):
        pass


class Programs:
    def __init__(self, stream):
        self.stream, self.lock = stream, threading.Lock()
        self.decode = codecs.getincrementaldecoder('utf-8')('replace').decode
        self.pipe, self.into = os.pipe()
        os.dup2(self.into, stream._original_stdstream_fd)
        # In place of the kernel's own, which is never told anything again.
        stream.watch_fd_thread = threading.Thread(target=self.watch, daemon=True)
        stream.watch_fd_thread.start()

    def watch(self):
        while self.stream._should_watch:
            select.select([self.pipe], [], [])
            self.read()

    def read(self):
        with self.lock:
            # No more than there is now: some print for ever.
            size = struct.unpack('i', fcntl.ioctl(self.pipe, termios.FIONREAD, bytes(4)))[0]
            if size > 0:
                data = os.read(self.pipe, size)
                self.stream.write(self.decode(data))
                os.write(self.stream._original_stdstream_copy, data)

    def open_again(self):
        try:
            os.fstat(self.stream._original_stdstream_fd)
        except OSError:
            os.dup2(self.into, self.stream._original_stdstream_fd)


def flush():
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


def unless_usable(name, stream):
    now = getattr(sys, name, None)
    if now is None or getattr(now, 'closed', False):
        setattr(sys, name, stream)


events = get_ipython().events
events.register('post_execute', flush)
for name in ('stdout', 'stderr'):
    stream = getattr(sys, name)
    stream.echo = Echo(FOLDER + '/' + name)
    stream.close = lambda: None
    events.register('pre_execute', functools.partial(unless_usable, name, stream))
    if getattr(stream, '_should_watch', False):
        programs = Programs(stream)
        events.register('post_execute', programs.read)
        events.register('pre_execute', programs.open_again)
    events.register('post_execute', stream.flush)
