import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { PythonPool } from '../../activities/grading/python-pool.ts';
import { Unanswerable } from '../../activities/grading/python-worker.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';

/** Answers its process id, after doing what it is told. */
const PROGRAM = `
import os, sys, time
sys.path.insert(0, ${JSON.stringify(path.join(PROJECT_ROOT, 'activities', 'grading'))})
from worker import serve
def answer(request):
    do = request.get('do')
    if do == 'raise': raise ValueError('no such thing')
    if do == 'die': os._exit(3)
    if do in ('killed', 'killed once'):
        with open(request['file'], 'a+') as file: file.write('x'); times = file.tell()
        if do == 'killed' or times == 1: os.kill(os.getpid(), 9)
    if do == 'hang':
        while True: pass
    if do == 'sleep': time.sleep(600)
    if do == 'print': print('noise'); os.write(1, b'more noise\\n')
    if do == 'grow': bytearray(8 * 1024 ** 3)
    return os.getpid()
serve(answer)
`;

async function pool(t: TestContext, program = PROGRAM, size = 1): Promise<PythonPool> {
  const folder = await mkdtemp(path.join(tmpdir(), 'pool-'));
  const file = path.join(folder, 'program.py');
  await writeFile(file, program);
  const made = new PythonPool({ python: loadTools().python, program: pathToFileURL(file), size });
  t.after(async () => {
    await made.close();
    await rm(folder, { recursive: true });
  });
  return made;
}

test('one warm process answers one request after the other', async (t) => {
  const workers = await pool(t);
  const pids = await Promise.all([1, 2, 3].map(() => workers.ask({}, 10)));
  assert.equal(new Set(pids).size, 1);
  assert.equal(await workers.ask({ do: 'print' }, 10), pids[0], 'what a library prints is no answer');
});

test('a request that raises is a failed grade; the process goes on', async (t) => {
  const workers = await pool(t);
  const pid = await workers.ask({}, 10);
  await assert.rejects(workers.ask({ do: 'raise' }, 10), {
    type: 'GraderFailed',
    message: 'grader program.py: ValueError: no such thing',
  });
  await assert.rejects(workers.ask({ do: 'grow' }, 10), { type: 'GraderFailed', message: /MemoryError/ });
  assert.equal(await workers.ask({}, 10), pid);
});

test('a process that dies or hangs is replaced, and holds up nobody', async (t) => {
  const workers = await pool(t);
  const first = await workers.ask({}, 10);
  await assert.rejects(workers.ask({ do: 'die' }, 10), { type: 'GraderFailed', message: /status 3/ });
  const second = await workers.ask({}, 10);
  assert.notEqual(second, first);
  // Seconds of processor time: well beyond those after which it gives its place away, and another process starts.
  const hanging = assert.rejects(workers.ask({ do: 'hang' }, 6), {
    type: 'GraderFailed',
    message: /its time was over/,
  });
  let hangs = true;
  void hanging.then(() => {
    hangs = false;
  });
  const third = await workers.ask({}, 10);
  assert.ok(hangs && third !== second, 'another process answered meanwhile');
  await hanging;
  assert.throws(() => process.kill(second as number, 0), 'the one that hung is dead');
});

test('a worker that dies is not yet the request’s doing: it is asked of another', async (t) => {
  const workers = await pool(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'pool-'));
  t.after(() => rm(folder, { recursive: true }));
  const file = path.join(folder, 'times');
  assert.equal(typeof (await workers.ask({ do: 'killed once', file }, 10)), 'number');
  const failed = (request: object, seconds = 10) =>
    workers.ask(request, seconds).then(
      () => assert.fail('it was answered'),
      (error): Error => error,
    );
  const killed = await failed({ do: 'killed', file });
  assert.match(killed.message, /SIGKILL/);
  assert.equal(killed instanceof Unanswerable, false, 'somebody else ended both');
  assert.equal(await readFile(file, 'utf8'), 'xxxx');
  const stuck = await failed({ do: 'sleep' }, 0.2);
  assert.match(stuck.message, /its time was over/);
  assert.equal(stuck instanceof Unanswerable, false, 'it got no processor time');
  for (const request of [{ do: 'die' }, { do: 'raise' }, { do: 'hang' }]) {
    assert.ok((await failed(request, 1)) instanceof Unanswerable, request.do);
  }
});

test('a program that does not load fails the grade with its own words', async (t) => {
  const workers = await pool(t, 'import nothing_of_this_name');
  await assert.rejects(workers.ask({}, 10), { type: 'GraderFailed', message: /nothing_of_this_name/ });
});

test('a caller that gives up is told so at once, and its place goes to the next', async (t) => {
  const workers = await pool(t);
  const given = new AbortController();
  const asked = workers.ask({ do: 'hang' }, 1, given.signal);
  given.abort(new Error('over'));
  await assert.rejects(asked, /over/);
  assert.equal(typeof (await workers.ask({}, 10)), 'number');
});
