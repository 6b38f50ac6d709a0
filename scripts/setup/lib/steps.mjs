import { explain } from './failure.mjs';

/** Thrown inside a step that needs another one which failed: the other one's report is enough. */
class NeededStepFailed extends Error {}

/**
 * @typedef {object} Step
 * @property {string} title
 * @property {(context: object, report: object, needs: (name: string) => Promise<any>) => Promise<{ value: any, summary: string }>} run
 *   `needs(name)` waits for another step's value.
 */

/**
 * Runs all steps side by side. A step that fails stops none of the others, so that one run reports every
 * problem and what did work need not be done again.
 * @param {Record<string, Step>} steps
 * @returns {Promise<{ values: Record<string, any>, failures: { title: string, text: string }[] }>}
 */
export async function runSteps(steps, context, reporter) {
  const values = {};
  const failures = [];
  const started = {};
  const needs = async (name) => {
    if (!(await started[name])) throw new NeededStepFailed(`needs ${steps[name].title}, which failed`);
    return values[name];
  };

  async function start(name, { title, run }) {
    const report = reporter.step(title);
    try {
      const { value, summary } = await run(context, report, needs);
      values[name] = value;
      report.done(summary);
      return true;
    } catch (error) {
      const text = error instanceof NeededStepFailed ? error.message : explain(error);
      report.failed(text.split('\n', 1)[0]);
      if (!(error instanceof NeededStepFailed)) failures.push({ title, text });
      return false;
    }
  }

  for (const [name, step] of Object.entries(steps)) {
    // A turn later, so that `started` is complete before any step asks for another.
    started[name] = Promise.resolve().then(() => start(name, step));
  }
  await Promise.all(Object.values(started));
  return { values, failures };
}
