import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import os from 'node:os';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { messageOf, RolloutError } from '../../contracts/failures.ts';

/** Milliseconds that a worker may take to load its program. */
const START_MS = 120_000;
/** A request that takes longer than this keeps its worker, but not its place: another worker takes the next. */
const SLOW_MS = 1500;
/** So many at most: more processes only slow each other down. */
const MOST_SLOW = 8;
/** A request's limit is processor time; of time on the clock it gets so many times that: the slow ones share the processors. */
const CLOCK_FACTOR = 20;
/** Of what a worker wrote to standard error, the end that is kept. */
const MOST_ERRORS = 2000;
/** Bytes of address space of one worker. */
const MEMORY_BYTES = 2 * 1024 ** 3;

/** A pool of workers that run one program. */
export interface PythonPoolOptions {
  /** Absolute path of the Python that runs it. */
  readonly python: string;
  /** The program: for each line of JSON on standard input it prints one, in turn; see {@link PythonPool}. */
  readonly program: URL;
  /** Workers that are busy with quick requests at once. */
  readonly size?: number;
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

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

interface Job {
  readonly request: object;
  readonly seconds: number;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/**
 * Warm processes of one Python program, started when they are needed. The program is worker.py's `serve(answer)`: a
 * line `{"ready": true}` once it has loaded, then for each request one line `{"answer": …}` or `{"error": "…"}`.
 *
 * Each request has a limit of processor time, and a worker that does not keep it, or that dies, is replaced. It holds up
 * no others: a slow request gives its place in the pool away. What is idle does not keep this process alive, and ends
 * with it.
 */
export class PythonPool {
  private readonly options: PythonPoolOptions;
  private readonly size: number;
  private readonly idle: PythonWorker[] = [];
  private readonly waiting: Job[] = [];
  /** Places taken: by workers that load, and by requests that are not slow yet. */
  private taken = 0;
  private slow = 0;

  constructor(options: PythonPoolOptions) {
    this.options = options;
    this.size = options.size ?? Math.max(2, os.availableParallelism());
  }

  /**
   * What the program answers to a request.
   * @throws Unanswerable; RolloutError GraderFailed if its workers do not start or are killed; why `signal` was aborted
   */
  async ask(request: object, seconds: number, signal?: AbortSignal): Promise<unknown> {
    signal?.throwIfAborted();
    let left: () => void = () => {};
    try {
      return await new Promise((resolve, reject) => {
        const job: Job = { request, seconds, resolve, reject };
        left = () => {
          const place = this.waiting.indexOf(job);
          if (place >= 0) this.waiting.splice(place, 1);
          reject(signal?.reason); // one that is under way ends by its own limit
        };
        signal?.addEventListener('abort', left);
        this.waiting.push(job);
        this.next();
      });
    } finally {
      signal?.removeEventListener('abort', left);
    }
  }

  /** Ends the workers that are idle; they are gone when this resolves. */
  async close(): Promise<void> {
    await Promise.all(this.idle.splice(0).map((worker) => worker.end()));
  }

  private next(): void {
    while (this.taken < this.size) {
      const job = this.waiting.shift();
      if (!job) return;
      this.taken++;
      void this.serve(job);
    }
  }

  private async serve(job: Job): Promise<void> {
    let slow = false;
    const giveWay = () => {
      if (this.slow >= MOST_SLOW) return;
      slow = true;
      this.slow++;
      this.taken--;
      this.next();
    };
    let timer: NodeJS.Timeout | undefined;
    const answer = async (worker: PythonWorker, isSecond: boolean) => {
      timer ??= setTimeout(giveWay, SLOW_MS);
      try {
        return await worker.ask(job.request, job.seconds, isSecond);
      } finally {
        if (worker.alive && this.idle.length < this.size) this.idle.push(worker);
        else void worker.end();
      }
    };
    try {
      const first = this.idleWorker() ?? (await PythonWorker.start(this.options));
      try {
        job.resolve(await answer(first, false));
      } catch (error) {
        if (!(error instanceof WorkerDied)) throw error;
        job.resolve(await answer(await PythonWorker.start(this.options), true));
      }
    } catch (error) {
      job.reject(error);
    } finally {
      clearTimeout(timer);
      if (slow) this.slow--;
      else this.taken--;
      this.next();
    }
  }

  private idleWorker(): PythonWorker | undefined {
    for (let worker = this.idle.pop(); worker; worker = this.idle.pop()) if (worker.alive) return worker;
    return undefined;
  }
}

/** Perhaps not of what it was asked. */
class WorkerDied extends RolloutError {}

/** One process; it has one request at a time. */
class PythonWorker {
  private readonly child: Child;
  private readonly name: string;
  private lines = '';
  private errors = '';
  private heard: ((line: string) => void) | undefined;
  private late = false;
  private isSecond = false;
  private failed: ((error: RolloutError) => void) | undefined;

  private constructor({ python, program }: PythonPoolOptions) {
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
  static async start(options: PythonPoolOptions): Promise<PythonWorker> {
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

  /** The next line of output; after `timeoutMs` the process is killed. */
  private line(timeoutMs: number): Promise<string> {
    return new Promise((resolve, reject) => {
      // Not unref'd: somebody waits.
      const timer = setTimeout(() => {
        this.late = true;
        void this.end();
      }, timeoutMs);
      this.heard = (line) => {
        clearTimeout(timer);
        this.failed = undefined;
        resolve(line);
      };
      this.failed = (error) => {
        clearTimeout(timer);
        reject(error);
      };
      if (!this.alive) this.fail(new WorkerDied('GraderFailed', `${this.name}: it has ended`));
    });
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
