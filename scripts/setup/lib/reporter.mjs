/** Where output is no terminal, a step that goes on says so this often. */
const PLAIN_PROGRESS_MS = 10_000;
const REDRAW_MS = 100;
const TITLE_WIDTH = 16;

/**
 * Shows the steps: one live line each on a terminal, plain lines elsewhere.
 * @param {{ stream?: NodeJS.WriteStream }} [options]
 */
export function createReporter({ stream = process.stderr } = {}) {
  const live = stream.isTTY === true && process.env.TERM !== 'dumb';
  const running = new Map();
  let drawn = 0;
  const timer = live ? setInterval(redraw, REDRAW_MS) : undefined;
  timer?.unref();

  function erase() {
    if (drawn > 0) stream.write(`\x1b[${drawn}A\x1b[0J`);
    drawn = 0;
  }
  function draw() {
    for (const step of running.values()) {
      const line = `   ..  ${step.title.padEnd(TITLE_WIDTH)}  ${seconds(step.since)}  ${step.doing}`;
      stream.write(`${line.slice(0, Math.max(20, (stream.columns ?? 80) - 1))}\n`);
    }
    drawn = running.size;
  }
  function redraw() {
    erase();
    draw();
  }
  function print(mark, title, text) {
    if (live) erase();
    stream.write(`${mark.padStart(5)}  ${title.padEnd(TITLE_WIDTH)}  ${text}\n`);
    if (live) draw();
  }

  return {
    /** A step begins; the returned object tells how it goes. */
    step(title) {
      const step = { title, since: performance.now(), doing: 'starting', printed: performance.now() };
      running.set(title, step);
      const finish = (mark, text) => {
        running.delete(title);
        print(mark, title, `${text} (${seconds(step.since)})`);
      };
      return {
        /** What it does now; replaces the last such text. */
        progress(text) {
          step.doing = text;
          if (live || performance.now() - step.printed < PLAIN_PROGRESS_MS) return;
          step.printed = performance.now();
          print('..', title, `${seconds(step.since)} ${text}`);
        },
        /** A line that stays. */
        say(text) {
          step.doing = text;
          step.printed = performance.now();
          print('..', title, text);
        },
        /** A line that stays and that the person should read. */
        warn: (text) => print('note', title, text),
        done: (text) => finish('ok', text),
        failed: (text) => finish('FAIL', text),
      };
    },
    /** Free text below the steps. */
    text(text) {
      if (live) erase();
      stream.write(`${text}\n`);
      if (live) draw();
    },
    close() {
      clearInterval(timer);
      if (live) erase();
    },
  };
}

function seconds(since) {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}
