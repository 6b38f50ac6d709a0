import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { messageOf, RolloutError } from '../../contracts/failures.ts';

/** Milliseconds in which a worker that loads its program has to get on. */
const START_MS = 120_000;
/** A request's limit is processor time. After so many times that on the clock, one that got none of it is stuck. */
const CLOCK_FACTOR = 6;
/** Of what a worker wrote to standard error, the end that is kept. */
const MOST_ERRORS = 2000;
/** Bytes of address space of one worker. */
const MEMORY_BYTES = 2 * 1024 ** 3;

/** What a worker runs. */
export interface WorkerProgram {
  /** Absolute path of the Python that runs it. */
  readonly python: string;
  /** The program: worker.py's `serve(answer)`. */
  readonly program: URL;
}

/**
 * The program raised at a request, took more processor time, or died of it twice: it would again. What is nobody's doing,
 * such as a worker that was killed from outside, is a plain GraderFailed.
 */
export class Unanswerable extends RolloutError {
  constructor(message: string) {
    super('GraderFailed', message);
  }
}

/** Perhaps not of what it was asked. */
export class WorkerDied extends RolloutError {}

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** One process; it has one request at a time. */
export class PythonWorker {
  private readonly child: Child;
  private readonly name: string;
  private lines = '';
  private errors = '';
  private heard: ((line: string) => void) | undefined;
  private late = false;
  private isSecond = false;
  private failed: ((error: RolloutError) => void) | undefined;

  private constructor({ python, program }: WorkerProgram) {
    const file = fileURLToPath(program);
    this.name = `grader ${file.split('/').at(-1)}`;
    // No module of the folder it is started in, no settings of whoever started it.
    this.child = spawn(python, ['-IB', file, String(MEMORY_BYTES)], {
      cwd: '/',
      env: { LC_ALL: 'C.UTF-8', PYTHONHASHSEED: '0' },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.child.unref();
    for (const stream of [this.child.stdin, this.child.stdout, this.child.stderr]) {
      (stream as unknown as { unref(): void }).unref();
    }
    this.child.stdin.on('error', () => {}); // its end is told by 'close'
    this.child.stdout.setEncoding('utf8').on('data', (text: string) => this.take(text));
    this.child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.errors = (this.errors + text).slice(-MOST_ERRORS);
    });
    this.child.on('error', (error) => this.fail(new RolloutError('GraderFailed', messageOf(error))));
    this.child.on('close', (code, signal) => this.fail(this.endedBy(code, signal)));
  }

  /** A worker that has loaded its program. @throws RolloutError GraderFailed */
  static async start(options: WorkerProgram): Promise<PythonWorker> {
    const worker = new PythonWorker(options);
    await worker.line(START_MS);
    return worker;
  }

  get alive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** `isSecond`: another died of this request. @throws WorkerDied, Unanswerable; RolloutError GraderFailed */
  async ask(request: object, seconds: number, isSecond: boolean): Promise<unknown> {
    this.isSecond = isSecond;
    const line = this.line(seconds * 1000 * CLOCK_FACTOR);
    this.child.stdin.write(`${JSON.stringify({ request, seconds })}\n`);
    const said = JSON.parse(await line) as { answer?: unknown; error?: string };
    if (said.error !== undefined) throw new Unanswerable(`${this.name}: ${said.error}`);
    return said.answer;
  }

  /** It is gone when this resolves. */
  async end(): Promise<void> {
    if (!this.alive) return;
    const gone = once(this.child, 'exit');
    this.child.ref(); // somebody may wait
    this.child.kill('SIGKILL');
    await gone;
  }

  /** The next line of output; if in `stuckMs` none comes and no processor time is used, the process is killed. */
  private line(stuckMs: number): Promise<string> {
    return new Promise((resolve, reject) => {
      // Not unref'd: somebody waits.
      let used = this.processorTime();
      const timer = setInterval(() => {
        const before = used;
        used = this.processorTime();
        if (used !== before) return; // a busy machine fails nobody: it ends by its own limit
        clearInterval(timer);
        this.late = true;
        void this.end();
      }, stuckMs);
      this.heard = (line) => {
        clearInterval(timer);
        this.failed = undefined;
        resolve(line);
      };
      this.failed = (error) => {
        clearInterval(timer);
        reject(error);
      };
      if (!this.alive) this.fail(new WorkerDied('GraderFailed', `${this.name}: it has ended`));
    });
  }

  /** In ticks of the clock, as Linux counts them (proc(5), fields 14 and 15 of stat). */
  private processorTime(): number {
    try {
      const stat = readFileSync(`/proc/${this.child.pid}/stat`, 'latin1');
      const [user, system] = stat
        .slice(stat.lastIndexOf(')') + 2)
        .split(' ')
        .slice(11, 13);
      return Number(user) + Number(system);
    } catch {
      return 0; // it has ended, which its 'close' tells
    }
  }

  private take(text: string): void {
    this.lines += text;
    const end = this.lines.indexOf('\n');
    if (end < 0) return;
    const line = this.lines.slice(0, end);
    this.lines = this.lines.slice(end + 1);
    this.heard?.(line);
  }

  private endedBy(code: number | null, signal: NodeJS.Signals | null): RolloutError {
    const how =
      this.late || signal === 'SIGPROF' ? 'its time was over' : `it ended by ${signal ?? `status ${code}`}`;
    const message = `${this.name}: ${how}${this.errors && `: ${this.errors.trim()}`}`;
    if (signal === 'SIGPROF') return new Unanswerable(message);
    if (this.late) return new RolloutError('GraderFailed', message); // the machine gave it no time
    if (!this.isSecond) return new WorkerDied('GraderFailed', message);
    return signal === 'SIGKILL' ? new RolloutError('GraderFailed', message) : new Unanswerable(message);
  }

  private fail(problem: RolloutError): void {
    this.failed?.(problem);
    this.failed = undefined;
  }
}
