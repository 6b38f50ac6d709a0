import os from 'node:os';
import { PythonWorker, WorkerDied, type WorkerProgram } from './python-worker.ts';

/** A request that takes longer than this keeps its worker, but not its place: another worker takes the next. */
const SLOW_MS = 1500;
/** So many at most: more processes only slow each other down. */
const MOST_SLOW = 8;

/** A pool of workers that run one program. */
interface PythonPoolOptions extends WorkerProgram {
  /** Workers that are busy with quick requests at once. */
  readonly size?: number;
}

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
