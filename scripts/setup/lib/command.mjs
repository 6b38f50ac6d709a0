import { spawn } from 'node:child_process';

/** Lines of output kept for the text of a failure. */
const TAIL_LINES = 25;

/** Process groups that run now; ended when the set-up itself is told to stop. */
const running = new Set();

/** A command that could not be started, ended with another code than 0, or took too long. */
export class CommandFailed extends Error {
  constructor(message, { output = '', code = null } = {}) {
    super(output === '' ? message : `${message}\n${output}`);
    this.name = 'CommandFailed';
    this.output = output;
    this.code = code;
  }
}

/**
 * Runs a command without a shell and without input.
 * @param {string} file
 * @param {string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, onLine?: (line: string) => void, timeoutMs?: number }} [options]
 * @returns {Promise<{ stdout: string, output: string }>} output holds the last lines of both streams
 * @throws {CommandFailed} with the last lines of its output
 */
export function run(file, args, { cwd, env = process.env, onLine = () => {}, timeoutMs = 0 } = {}) {
  return new Promise((resolve, reject) => {
    // A group of its own, so that everything a build starts can be ended with it.
    const child = spawn(file, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    const tail = [];
    let stdout = '';
    let timedOut = false;
    running.add(child);
    const timer = timeoutMs > 0 ? setTimeout(expire, timeoutMs) : undefined;

    function expire() {
      timedOut = true;
      endGroup(child, 'SIGKILL');
    }
    function keep(line) {
      if (line.trim() === '') return;
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      onLine(line);
    }
    function settle() {
      clearTimeout(timer);
      running.delete(child);
    }

    child.stdout.setEncoding('utf8').on('data', (text) => {
      stdout += text;
    });
    const flush = [byLine(child.stdout, keep), byLine(child.stderr.setEncoding('utf8'), keep)];
    child.on('error', (error) => {
      settle();
      reject(new CommandFailed(`${file} could not be started: ${error.code ?? error.message}`));
    });
    child.on('close', (code, signal) => {
      settle();
      for (const end of flush) end();
      const output = tail.join('\n');
      if (code === 0) return resolve({ stdout, output });
      const why = timedOut
        ? `gave no answer within ${timeoutMs / 1000} s`
        : signal
          ? `was ended by ${signal}`
          : `ended with code ${code}`;
      reject(new CommandFailed(`${[file, ...args].join(' ')} ${why}`, { output, code }));
    });
  });
}

/** Ends every command that still runs, with all that it started. */
export function endAll() {
  for (const child of running) endGroup(child, 'SIGTERM');
}

function endGroup(child, signal) {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    // It has ended by itself in the meantime.
    if (error.code !== 'ESRCH') throw error;
  }
}

/** Calls back for each line of a stream; the returned function delivers what follows the last newline. */
function byLine(stream, onLine) {
  let rest = '';
  stream.on('data', (text) => {
    const lines = (rest + text).split(/\r?\n|\r/);
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  });
  return () => onLine(rest);
}
