import path from 'node:path';
import type { TestContext } from 'node:test';
import { MockActivityEnvironment } from '@temporalio/testing';
import { z } from 'zod';
import type { Policy } from '../../activities/agent/agent.ts';
import { hermes } from '../../activities/agent/parsers/hermes.ts';
import type { ToolCallParser } from '../../activities/agent/parsers/parser.ts';
import { makeControlActivities } from '../../activities/control.ts';
import { makeEvaluateActivities } from '../../activities/evaluate.ts';
import { type AgentHandler, defineHandler, type RunContext } from '../../activities/handlers/kit.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import { makeRunActivities, type PolicySource } from '../../activities/run.ts';
import { assembleTrajectories } from '../../activities/trajectory/assemble.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadTools } from '../../config/tools.ts';
import type { Limits, Sampling } from '../../contracts/request.ts';
import type { AbortReason, SandboxBackendName } from '../../contracts/sandbox.ts';
import type { Placement, RunReport } from '../../contracts/stages.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { startHost } from '../sandbox/support.ts';
import { settledRequest } from '../support/settled.ts';

/** How a program asks, in Python with nothing but its standard library. Gives status and body. */
export const ASK = `
import json, os, sys, urllib.request, urllib.error
def ask(messages, **more):
    body = json.dumps({'model': 'm', 'messages': messages, **more}).encode()
    request = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body,
                                     {'content-type': 'application/json'})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
def user(text): return {'role': 'user', 'content': text}
def tool(text): return {'role': 'tool', 'tool_call_id': 'x', 'content': text}
def said(answer): return answer[1]['choices'][0]['message']
`;

const RUN_ID = 'workflow-run-1';

export interface StageOptions {
  readonly policy?: Policy;
  /** In place of one policy. */
  readonly policies?: PolicySource;
  /** Python that runs in the sandbox; what it prints is the answer. */
  readonly program?: string;
  /** In place of one that runs the program. */
  // biome-ignore lint/suspicious/noExplicitAny: of whatever task
  readonly handler?: AgentHandler<any>;
  readonly parser?: ToolCallParser;
  readonly limits?: Partial<Limits>;
  readonly sampling?: Partial<Sampling>;
  readonly backend?: SandboxBackendName;
  readonly rolloutId?: string;
}

/** Runs the program with the endpoint's address, once, whatever becomes of the worker. */
const runProgram =
  (program: string) =>
  async ({ sandbox, endpoint }: RunContext<object>): Promise<string> => {
    const address = `OPENAI_BASE_URL=${await endpoint.baseUrl()} LLM_SOCKET=${endpoint.socketPath}`;
    const ran = await sandbox.shell('agent', {
      callId: 'agent',
      command: `${address} python3 - <<'PROGRAM'\n${ASK}${program}\nPROGRAM\n`,
      timeoutMs: 60_000,
    });
    return ran.output.text;
  };

/** The stages around a real sandbox host for an agent that is a program. */
export async function stages(t: TestContext, options: StageOptions) {
  const { client: sandboxes, stateDir, running } = await startHost(t, options.backend);
  const handler =
    options.handler ??
    defineHandler({
      name: 'program',
      description: '',
      schema: z.object({}),
      example: {},
      run: runProgram(options.program ?? ''),
      evaluate: async () => ({ total: 1, parts: {} }),
    });
  const handlers = new HandlerRegistry([handler as never]);
  const store = new TrajectoryStore(path.join(stateDir, 'store'));
  const { rolloutId = 'program:1', limits, sampling } = options;
  const task = { handler: handler.name, id: 'one', data: handler.example };
  const request = settledRequest({ rolloutId, task, limits, sampling });
  const env = new MockActivityEnvironment({
    heartbeatTimeoutMs: 30_000,
    workflowExecution: { workflowId: rolloutId, runId: RUN_ID },
  });
  const inActivity = <R>(work: () => Promise<R>) => env.run(work) as Promise<R>;
  const { init } = makeInitActivities({ handlers, sandboxes, store, host: loadTools() });
  const { abort, pause } = makeControlActivities({ sandboxes, store });
  const alone = (policy: Policy): PolicySource => ({ open: async () => ({ ...policy, close: () => {} }) });
  const runFrom = (policies: PolicySource, placement: Placement, entry = 1): Promise<RunReport> => {
    const parser = options.parser ?? hermes;
    const { run } = makeRunActivities({ handlers, sandboxes, policies, parser, store });
    return inActivity(() => run({ request, attempt: 1, placement, entry }));
  };
  const records = async () => (await store.getLedger({ rolloutId, workflowRunId: RUN_ID, attempt: 1 })) ?? [];
  return {
    sandboxes,
    running,
    init: () => inActivity(() => init({ request, attempt: 1 })),
    run: (placement: Placement, entry?: number) =>
      runFrom(options.policies ?? alone(options.policy as Policy), placement, entry),
    runWith: (policy: Policy, placement: Placement, entry?: number) =>
      runFrom(alone(policy), placement, entry),
    abort: ({ sandboxId }: Placement, reason: AbortReason = 'user') =>
      inActivity(() => abort({ sandboxId, reason })),
    pause: ({ sandboxId }: Placement, entry: number) => inActivity(() => pause({ sandboxId, entry })),
    evaluate: (placement: Placement, report: RunReport) => {
      const { evaluate } = makeEvaluateActivities({ handlers, store, sandboxes });
      const record = { startedAt: new Date().toISOString(), retried: [], initMs: 1, runMs: 1 };
      return inActivity(() => evaluate({ request, attempt: 1, placement, record, report }));
    },
    records,
    trajectories: async (): Promise<Trajectory[]> => {
      const context = { request, workflowRunId: RUN_ID, attempt: 1, reward: null, metadata: {} };
      return assembleTrajectories(await records(), context);
    },
    outcome: async () => {
      const end = (await records()).at(-1);
      return end?.kind === 'end' ? end.outcome : undefined;
    },
  };
}
