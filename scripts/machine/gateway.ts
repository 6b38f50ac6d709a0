import type { Machine } from './machine.ts';
import { until } from './until.ts';

const ADDRESS = 'http://127.0.0.1:8700';

/** What the gateway answered. */
export interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: each caller knows what it asked for
  readonly body: any;
}

/** Asks the gateway in the machine. Status 0: nobody answered. */
export async function ask(machine: Machine, path: string, body?: object): Promise<Answer> {
  const options = body
    ? { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }
    : {};
  const script = `fetch(${JSON.stringify(ADDRESS + path)}, ${JSON.stringify(options)})
    .then(async (answer) => ({ status: answer.status, body: await answer.json() }), () => ({ status: 0 }))
    .then((answer) => console.log(JSON.stringify(answer)))`;
  return JSON.parse(await machine.run(`node <<'END'\n${script}\nEND`)) as Answer;
}

/** Begins a rollout of the chaos suite's task type, with as many turns. */
export async function beginRollout(machine: Machine, rolloutId: string, turns: number): Promise<void> {
  const data = { name: rolloutId, kind: 'usual', turns };
  const limits = { maxTurns: turns + 1, toolTimeoutSeconds: 600 };
  const deadlines = { initSeconds: 900, runSeconds: 7200, evaluateSeconds: 900 };
  const task = { handler: 'chaos', id: rolloutId, data };
  const { status, body } = await ask(machine, '/v1/rollouts', { rolloutId, task, limits, deadlines });
  if (status >= 300 || status === 0) throw new Error(`the gateway: ${status} ${JSON.stringify(body)}`);
}

/** Its terminal record, as soon as it is there. */
export async function recordOf(machine: Machine, rolloutId: string): Promise<Answer['body']> {
  let last: Answer | undefined;
  await until(`the record of ${rolloutId}`, async () => {
    last = await ask(machine, `/v1/rollouts/${rolloutId}?wait=20`);
    return last.status === 200 && last.body.done === true;
  });
  return last?.body.record;
}
