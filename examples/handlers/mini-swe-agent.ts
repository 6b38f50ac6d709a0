import { defineHandler, pythonBinds, z } from 'durable-rollouts/handler';

const RepairTask = z.object({
  /** What the agent is told. */
  problem: z.string().min(1),
  /** Files of the workspace, by path. */
  files: z.record(z.string(), z.string()),
  /** The one file of them that the agent is to mend. */
  mend: z.string().min(1),
  /** A command that succeeds where it is mended; the agent does not see it. */
  check: z.string().min(1),
});

/**
 * mini-swe-agent as it comes from PyPI works on a task in the sandbox, with its own loop and its own prompts: its calls of
 * a model are answered by the policy. `environment` is a virtual environment that has it.
 */
export const miniSweAgent = (environment: string) =>
  defineHandler<z.infer<typeof RepairTask>>({
    name: 'mini-swe-agent',
    description: 'Mend a file; by mini-swe-agent, whose environment lies at /opt/mini-swe-agent of the host.',
    schema: RepairTask,
    example: {
      problem: 'double.py should print twice its argument.',
      files: { 'double.py': 'import sys\nprint(int(sys.argv[1]) + 2)\n' },
      mend: 'double.py',
      check: '[ "$(python3 double.py 21)" = 42 ]',
    },

    sandbox: () => ({
      binds: pythonBinds(`${environment}/bin/python`),
      environment: {
        MSWEA_CONFIGURED: 'true',
        MSWEA_GLOBAL_CONFIG_DIR: '/tmp/mini-swe-agent',
        MSWEA_COST_TRACKING: 'ignore_errors',
        // There is no network to fetch prices from.
        LITELLM_LOCAL_MODEL_COST_MAP: 'True',
        OPENAI_API_KEY: 'none',
      },
    }),

    init: async ({ task, sandbox }) => {
      for (const [path, content] of Object.entries(task.files)) {
        await sandbox.writeFile(`${sandbox.workspace}/${path}`, content);
      }
      await sandbox.writeFile('/tmp/problem', task.problem);
    },

    run: async ({ sandbox, endpoint }) => {
      const { output } = await sandbox.shell('agent', {
        callId: 'agent', // a run that is entered again finds the program that it started
        command: `OPENAI_BASE_URL=${await endpoint.baseUrl()} ${environment}/bin/python -m minisweagent --yolo \\
          --exit-immediately --cost-limit 0 --model openai/policy --model-class litellm_textbased \\
          --config mini_textbased.yaml --output /tmp/trajectory.json --task "$(cat /tmp/problem)"`,
        timeoutMs: 86_400_000, // the rollout's own deadline ends it
      });
      return output.text;
    },

    outcome: async ({ task, sandbox }) => {
      const file = await sandbox.exec({ argv: ['cat', task.mend], timeoutMs: 10_000 });
      return { mended: file.stdout.text };
    },

    evaluate: async ({ task, outcome, sandbox }) => {
      const fresh = await sandbox({});
      const files = { ...task.files, [task.mend]: String(outcome.mended) };
      for (const [path, content] of Object.entries(files)) {
        await fresh.writeFile(`${fresh.workspace}/${path}`, content);
      }
      const { exitCode } = await fresh.exec({ argv: ['/bin/bash', '-c', task.check], timeoutMs: 30_000 });
      const solved = exitCode === 0 ? 1 : 0;
      return { total: solved, parts: { solved } };
    },
  });

export default miniSweAgent('/opt/mini-swe-agent');
