"""Views and edits text files of a workspace. Runs inside the sandbox, in any Python from 3.6 on.

Bytes that an edit does not name stay as they are: encoding, byte order mark, line ends, mode, links.
Reads requests from standard input, each a line of base64 of a JSON object (mark, workspace, command and the
command's arguments), and answers each with a line: the mark, then JSON.
"""
import base64
import contextlib
import hashlib
import json
import os
import re
import stat
import sys

MAX_FILE_BYTES = 32 * 1024 ** 2
SHOWN_CHARACTERS = 16000
SHOWN_ENTRIES = 300
CONTEXT_LINES = 3
KEPT_VERSIONS = 50
LINE_END = re.compile('\r?\n')


class Refusal(Exception):
    """Why nothing was done, in words for the model."""


class Text:
    """A file's content as text, and how to get back to bytes."""

    def __init__(self, text, codec, mark=b'', errors='strict'):
        self.text, self.codec, self.mark, self.errors = text, codec, mark, errors

    def encode(self, text):
        try:
            return self.mark + text.encode(self.codec, self.errors)
        except UnicodeEncodeError as error:
            raise Refusal('the file is encoded in %s, which has no %r: nothing was changed'
                          % (self.codec, error.object[error.start:error.end]))

    def lines(self):
        """Lines without their ends."""
        lines = self.text.split('\n')
        if lines[-1] == '':
            lines.pop()
        return [line[:-1] if line.endswith('\r') else line for line in lines]


def readings(data):
    """The ways to read the bytes, the likeliest first. Each gives back the same bytes."""
    for mark, codec in ((b'\xef\xbb\xbf', 'utf-8'), (b'\xff\xfe', 'utf-16-le'), (b'\xfe\xff', 'utf-16-be')):
        if data.startswith(mark):
            try:
                return [Text(data[len(mark):].decode(codec), codec, mark)]
            except UnicodeDecodeError:
                pass
    if b'\0' in data:
        raise Refusal('it is a binary file: use a program for its format')
    try:
        return [Text(data.decode('utf-8'), 'utf-8')]
    except UnicodeDecodeError:
        mixed = Text(data.decode('utf-8', 'surrogateescape'), 'utf-8', errors='surrogateescape')
        return [Text(data.decode('latin-1'), 'latin-1'), mixed]


class Workspace:
    def __init__(self, root):
        self.root = os.path.realpath(root)

    def resolve(self, path):
        """The real path of `path`, links followed, which must lie in the workspace."""
        if path == '' or '\0' in path:
            raise Refusal('path is empty or holds a NUL')
        real = os.path.realpath(os.path.join(self.root, path))
        if os.path.commonpath([self.root, real]) != self.root:
            leads = '' if real == path else ' (it leads to %s)' % real
            raise Refusal('%s lies outside the workspace%s: this tool only works below %s'
                          % (path, leads, self.root))
        return real


@contextlib.contextmanager
def folder_of(real):
    """A descriptor of the folder that a file lies in, which is not another since its path was looked at."""
    parent = os.path.dirname(real)
    folder = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.readlink('/proc/self/fd/%d' % folder) != parent:
            raise Refusal('its folder was replaced meanwhile')
        yield folder
    finally:
        os.close(folder)


def opened(real, flags):
    """A descriptor of a file: of no link, and not blocking, as opening a FIFO would wait for a writer."""
    with folder_of(real) as folder:
        return os.open(os.path.basename(real), flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644, dir_fd=folder)


def remove(real):
    with folder_of(real) as folder:
        os.unlink(os.path.basename(real), dir_fd=folder)


def read(real, most=MAX_FILE_BYTES):
    handle = opened(real, os.O_RDONLY)
    with os.fdopen(handle, 'rb') as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise Refusal('it is not a regular file')
        if info.st_size > most:
            raise Refusal('it has %d bytes, and this tool takes %d at most' % (info.st_size, most))
        return file.read()


def write(real, data, before):
    """In place, so that mode, owner and hard links stay. What cannot be written whole is taken back."""
    handle = opened(real, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if before is None else 0))
    with os.fdopen(handle, 'wb', buffering=0) as file:
        try:
            put(file, data)
        except OSError:
            if before is None:
                remove(real)
            else:
                put(file, before)
            raise


def put(file, data):
    file.seek(0)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest):]
    file.truncate(len(data))


class History:
    """Earlier versions of one file, kept outside the workspace."""

    def __init__(self, real):
        home = os.environ.get('HOME') or '/tmp'
        name = hashlib.sha256(real.encode('utf-8', 'surrogateescape')).hexdigest()
        self.folder = os.path.join(home, '.rollout-editor', name)

    def versions(self):
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return sorted((name for name in names if name.isdigit()), key=int)

    def keep(self, before, after):
        versions = self.versions()
        for old in versions[:max(0, len(versions) + 1 - KEPT_VERSIONS)]:
            os.unlink(os.path.join(self.folder, old))
        os.makedirs(self.folder, exist_ok=True)
        number = int(versions[-1]) + 1 if versions else 0
        target = os.path.join(self.folder, str(number))
        try:
            with open(target, 'wb') as file:
                file.write(json.dumps([before is not None, digest(after)]).encode() + b'\n' + (before or b''))
        except OSError:
            os.unlink(target)
            raise
        return target

    def last(self):
        versions = self.versions()
        if not versions:
            raise Refusal('there is no edit of this file to undo')
        target = os.path.join(self.folder, versions[-1])
        try:
            head, content = read(os.path.realpath(target), 2 * MAX_FILE_BYTES).split(b'\n', 1)
            existed, after = json.loads(head.decode())
        except (Refusal, ValueError, TypeError):
            raise Refusal('what was kept of the last edit is damaged')
        return target, content if existed else None, after


def digest(data):
    return hashlib.sha256(data).hexdigest()


def change(real, before, after):
    kept = History(real).keep(before, after)
    try:
        write(real, after, before)
    except OSError:
        os.unlink(kept)
        raise


def numbered(lines, first, last):
    """Lines first to last (counted from 1), as many as can be shown."""
    shown, room = [], SHOWN_CHARACTERS
    for number in range(first, last + 1):
        line = lines[number - 1]
        if len(line) > room and shown:
            return shown + ['[lines %d-%d left out: view them with view_range]' % (number, last)]
        if len(line) > room:
            line = '%s [%d characters left out]' % (line[:room], len(line) - room)
        shown.append('%6d\t%s' % (number, line))
        room -= len(line) + 8
        if room <= 0 and number < last:
            return shown + ['[lines %d-%d left out: view them with view_range]' % (number + 1, last)]
    return shown


def around(text, codec, start, end):
    """The lines of a change and some around it."""
    lines = Text(text, codec).lines()
    first = max(1, text.count('\n', 0, start) + 1 - CONTEXT_LINES)
    last = min(len(lines), text.count('\n', 0, end) + 1 + CONTEXT_LINES)
    return numbered(lines, first, last)


def listing(folder):
    entries = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith('.'))
        depth = os.path.relpath(parent, folder).count(os.sep) + 1 if parent != folder else 0
        links = {name for name in folders if os.path.islink(os.path.join(parent, name))}
        names = [(name, '@' if name in links else '/') for name in folders]
        names += [(name, '') for name in files if not name.startswith('.')]
        entries += [os.path.relpath(os.path.join(parent, name), folder) + end for name, end in sorted(names)]
        if depth == 1:
            folders[:] = []
    entries.sort()
    rest = len(entries) - SHOWN_ENTRIES
    return entries[:SHOWN_ENTRIES] + (['[%d more entries left out]' % rest] if rest > 0 else [])


def view(real, request):
    if os.path.isdir(real):
        if 'view_range' in request:
            raise Refusal('view_range is for files, and this is a folder')
        return ['Two levels of the folder, without hidden entries:'] + listing(real)
    reading = readings(read(real))[0]
    lines = reading.lines()
    first, last = request.get('view_range', (1, -1))
    if not lines:
        return ['[the file is empty]']
    if not 1 <= first <= len(lines) or not (last == -1 or last >= first):
        raise Refusal('view_range is [first, last] with lines from 1 to %d, or -1 for the last' % len(lines))
    note = [] if reading.codec == 'utf-8' else ['[encoded in %s]' % reading.codec]
    return note + numbered(lines, first, len(lines) if last == -1 else min(last, len(lines)))


def create(real, request):
    if os.path.isdir(real):
        raise Refusal('it is a folder')
    before = read(real) if os.path.lexists(real) else None
    os.makedirs(os.path.dirname(real), exist_ok=True)
    change(real, before, needed(request, 'file_text').encode('utf-8'))
    return ['Created.' if before is None else 'Replaced the whole file.']


def matches(text, old):
    """Where `old` occurs, overlaps included. A line feed in it also stands for the end of a CRLF line."""
    parts = re.split('(\r\n|\n)', old)
    pattern = ''.join('(?:\r\n|(?<!\r)\n)' if part == '\n' else re.escape(part) for part in parts)
    return [match.span(1) for match in re.finditer('(?=(%s))' % pattern, text)]


def line_end_at(text, start, end):
    """The line end used where a change is made: in it, after it, or before it."""
    found = LINE_END.search(text, start, end) or LINE_END.search(text, end)
    if found:
        return found.group()
    before = text.rfind('\n', 0, start)
    return '\r\n' if before > 0 and text[before - 1] == '\r' else '\n'


def with_line_ends(text, end):
    return text if end == '\n' else re.sub('(?<!\r)\n', end, text)


def str_replace(real, request):
    old, new = needed(request, 'old_str'), request.get('new_str', '')
    if old == '':
        raise Refusal('old_str is empty: use insert to add text, or create for a whole file')
    before = read(real)
    found = [(reading, matches(reading.text, old)) for reading in readings(before)]
    reading, spans = next((pair for pair in found if pair[1]), found[0])
    text = reading.text
    if not spans:
        raise Refusal('old_str does not occur: nothing was changed%s' % hint(text, old))
    if len(spans) > 1:
        lines = [str(text.count('\n', 0, start) + 1) for start, _ in spans[:20]]
        raise Refusal('old_str occurs %d times, at line %s%s: nothing was changed. Add lines around it to name one'
                      % (len(spans), ', '.join(lines), ', …' if len(spans) > 20 else ''))
    start, end = spans[0]
    new = with_line_ends(new, line_end_at(text, start, end))
    if new == text[start:end]:
        raise Refusal('new_str is the same as old_str: there is nothing to change')
    after = text[:start] + new + text[end:]
    change(real, before, reading.encode(after))
    return ['Edited:'] + around(after, reading.codec, start, start + len(new))


def hint(text, old):
    if ''.join(old.split()) and ''.join(old.split()) in ''.join(text.split()):
        return '. It does with other white space: view the lines and copy them exactly'
    return ''


def insert(real, request):
    line, new = needed(request, 'insert_line'), needed(request, 'insert_text')
    if new == '':
        raise Refusal('insert_text is empty')
    before = read(real)
    reading = readings(before)[0]
    text = reading.text
    ends = [match.end() for match in re.finditer('\n', text)]
    count = len(reading.lines())
    if line > count:
        raise Refusal('insert_line is after which line to insert, from 0 to %d' % count)
    open_end = line == count and text != '' and not text.endswith('\n')
    at = len(text) if open_end else ([0] + ends)[line]
    end = line_end_at(text, at, at)
    new = with_line_ends(new, end)
    if open_end:
        # The last line has no end, and the new last one gets none either.
        new = end + (new[:-len(end)] if new.endswith(end) else new)
    elif not new.endswith('\n'):
        new += end
    after = text[:at] + new + text[at:]
    change(real, before, reading.encode(after))
    return ['Inserted:'] + around(after, reading.codec, at, at + len(new))


def undo(real, _request):
    target, before, after = History(real).last()
    if not os.path.lexists(real) or digest(read(real)) != after:
        raise Refusal('the file was changed by something else after the last edit: to undo would lose that')
    if before is None:
        remove(real)
    else:
        write(real, before, read(real))
    os.unlink(target)
    return ['Removed: it had been created by the last edit.' if before is None else 'Undone.']


def needed(request, name):
    if name not in request:
        raise Refusal('%s needs %s' % (request['command'], name))
    return request[name]


COMMANDS = {'view': view, 'create': create, 'str_replace': str_replace, 'insert': insert, 'undo': undo}


TEXTS = ('command', 'path', 'file_text', 'old_str', 'new_str', 'insert_text')


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def check(request):
    """What a schema says, for callers that have not asked it."""
    for name in TEXTS:
        if not isinstance(request.get(name, ''), str):
            raise Refusal('%s must be a text' % name)
    if request.get('command') not in COMMANDS or 'path' not in request:
        raise Refusal('command must be one of %s, and needs a path' % ', '.join(COMMANDS))
    line, lines = request.get('insert_line', 0), request.get('view_range', [1, -1])
    if not is_number(line) or line < 0:
        raise Refusal('insert_line must be a number from 0 on')
    if not isinstance(lines, list) or len(lines) != 2 or not all(map(is_number, lines)):
        raise Refusal('view_range must be two numbers, the first and the last line')


def run(request):
    check(request)
    for name, value in request.items():
        if isinstance(value, str) and re.search('[\ud800-\udfff]', value):
            raise Refusal('%s holds half of a surrogate pair, which is no character' % name)
    real = Workspace(request['workspace']).resolve(request['path'])
    return COMMANDS[request['command']](real, request)


def answer(request):
    path = request.get('path')
    try:
        return {'ok': True, 'text': '\n'.join(run(request))}
    except RecursionError:
        return {'ok': False, 'text': '%s: too many folders in one another. Nothing was changed.' % path}
    except Refusal as refusal:
        return {'ok': False, 'text': '%s: %s.' % (path, refusal)}
    except (OSError, MemoryError) as error:
        problem = getattr(error, 'strerror', None) or 'not enough memory'
        return {'ok': False, 'text': '%s: %s. Nothing was changed.' % (path, problem)}


def main():
    # A session of its own: what interrupts the shell is not meant for the editor.
    os.setsid()
    for line in sys.stdin:
        request = json.loads(base64.b64decode(line).decode('utf-8'))
        sys.stdout.write(request['mark'] + json.dumps(answer(request)) + '\n')
        sys.stdout.flush()


main()
