/** Who runs a command of the documentation. */
export type RunBy =
  /** `npm run test:docs`, at this place in its order. */
  | Step
  /** A file of this checkout that runs it, or the same program in the same way, and has this in it. */
  | { readonly file: string; readonly has: string }
  /** Not run: it takes what a test machine has not. `npm run check:production` checks what it is about. */
  | { readonly checked: string }
  /** By a person: it takes an hour. What it runs is there. */
  | { readonly byHand: string };

/** A command that `npm run test:docs` runs. */
export interface Step {
  readonly step: number;
  /** What stands for an example, in the order of replacing; `{name}` is what the session knows by that name. */
  readonly as?: readonly (readonly [string, string])[];
  /** It ends with this code; 0 if absent. */
  readonly code?: number;
  /** A service: what it says when it is up. */
  readonly says?: string;
  /** What it prints has this in it. */
  readonly prints?: string;
}

const TASKS = ['my-problems.jsonl', '{problems}'] as const;
const ROLLOUT = ['<rollout>', '{rollout}'] as const;
const OPEN = ['<rollout>', '{open}'] as const;
const LOCAL = ['localhost:8700', 'localhost:{gatewayPort}'] as const;
const SERVER = ['http://gpu-5:8000', '{vllm}'] as const;
const WITH_KEYS = ['rollouts', 'ROLLOUTS_TEMPORAL_ENCRYPTION_KEYS={other}/keys.json rollouts'] as const;
const TOKENIZER = ['~/models/Qwen3-8B', '{tokenizer}'] as const;
const SERVER_UP = { file: 'scripts/production/temporal-server.ts', has: 'install.sh' } as const;
const SLURM = { file: 'scripts/slurm/story.ts', has: 'server.sbatch' } as const;
const DOCKER = { checked: 'temporal-config/production/Dockerfile' } as const;
const KUBERNETES = { checked: 'temporal-config/production/kubernetes' } as const;
/** Runs all of the section. */
const SYSTEMD = { file: 'scripts/machine/units.ts', has: '## systemd' } as const;
const TRAINING = { byHand: 'examples/training/main.ts' } as const;
const AGENT = { file: 'scripts/mini-swe-agent/main.mjs', has: 'mini-swe-agent' } as const;

/** Every command that stands in the documentation, as `documentedCommands` gives it. */
export const COMMANDS: Readonly<Record<string, RunBy>> = {
  'git clone <this repository> && cd <its folder>': { file: '.ci/run', has: 'in a clean clone' },
  'npm start': { file: 'test/e2e/rollouts.test.ts', has: 'stack.up(' },
  'npm start -- --no-sample --handlers ./examples/handlers/count-lines.ts': {
    step: 0,
    as: [['npm start --', 'rollouts up']],
    says: 'The stack is up',
  },
  'npm start -- --server vllm=http://gpu-3:8000 vllm=http://gpu-4:8000 --tokenizer ~/models/Qwen3-8B': {
    file: 'test/client/server-flags.test.ts',
    has: 'vllm=',
  },

  'npx rollouts tasks check my-problems.jsonl --handler math': { step: 10, as: [TASKS] },
  'npx rollouts run --tasks my-problems.jsonl --handler math --samples 4 --out trajectories.jsonl': {
    ...{ step: 11, as: [TASKS] },
    prints: 'mean reward',
  },
  'npx rollouts list': { step: 12, prints: '{rollout}' },
  'npx rollouts top': { step: 13, prints: 'rollouts-run' },
  'npx rollouts show <rollout>': { step: 14, as: [ROLLOUT], prints: '── assistant ──' },
  'npx rollouts verify trajectories.jsonl --rescore': { step: 15, prints: ' 0 problems' },
  'npx rollouts batch run --tasks my-problems.jsonl --handler math --groups 8': {
    // A tiny model's rewards are often equal.
    ...{ step: 16, as: [TASKS, ['--groups 8', '--groups 1 --samples 2 --keep-equal']] },
  },
  'npx rollouts eval --tasks my-problems.jsonl --handler math --samples 4': {
    ...{ step: 17, as: [TASKS] },
    prints: 'pass@4',
  },
  'npx rollouts grade --handler math --tasks my-problems.jsonl --responses answers.jsonl': {
    ...{ step: 18, as: [TASKS] },
    prints: '"reward":1',
  },
  'npx rollouts handler init my-task': { step: 19, prints: 'handler.ts' },
  'npx rollouts config': { step: 20, prints: 'workers.runSlots' },
  'npx rollouts run --tasks examples/tasks/count-lines.jsonl --handler count-lines --handlers ./examples/handlers/count-lines.ts --samples 2':
    { step: 21, prints: 'mean reward' },
  'npx rollouts pause <rollout>': { step: 22, as: [OPEN] },
  'npx rollouts cancel <rollout>': { step: 23, as: [OPEN] },
  'grep -h \'"rollout":"my-batch:task-7:0"\' .rollouts/logs/*.log': {
    ...{ step: 24, as: [['my-batch:task-7:0', '{rollout}']] },
    prints: '"stage":"run"',
  },
  'rollouts archive --dry-run': { step: 25, prints: 'would be moved' },
  'rollouts archive': { step: 26, prints: 'moved to' },
  'rollouts prepare-server --retention 7': { step: 27, prints: 'retention 7 days' },

  'rollouts gateway': { step: 30, says: 'Server listening at' },
  'curl -s localhost:8700/v1/rollouts -H \'Idempotency-Key: step-12-task-7-sample-0\' -H \'Content-Type: application/json\' -d \'{"task": {"handler": "math", "id": "7", "data": {"question": "What is 6 times 7?", "answer": "#### 42"}}}\'':
    { step: 31, as: [LOCAL], prints: '"rolloutId":"step-12-task-7-sample-0"' },
  "curl -s 'localhost:8700/v1/rollouts/step-12-task-7-sample-0?wait=30'": {
    ...{ step: 32, as: [LOCAL] },
    prints: 'step-12-task-7-sample-0',
  },
  'curl -s localhost:8700/v1/rollouts/step-12-task-7-sample-0/trajectory': { step: 33, as: [LOCAL] },
  [`curl -s localhost:8700/v1/batches -H 'Content-Type: application/json' -d '{
 "batchId": "step-12",
 "sources": [{"file": "/data/gsm8k.jsonl", "handler": "math", "weight": 3},
 {"tasks": [{"handler": "code", "id": "7", "data": {…}}], "weight": 1, "domain": "code"}],
 "rules": {"groups": 64, "oversampling": 1.5, "surplus": "carry", "carryFrom": "step-11", "staleness": 1},
 "group": {"samples": 8, "overlong": {"mode": "penalty", "maxTokens": 4096, "cache": 512}},
 "rollout": {"sampling": {"temperature": 1, "maxTokensPerTurn": 1024}}
}'`]: {
    step: 34,
    as: [
      LOCAL,
      ['/data/gsm8k.jsonl', '{problems}'],
      ['{…}', '{code}'],
      // No batch was before it, and rewards may be equal.
      ['"groups": 64', '"groups": 1, "dropEqual": false'],
      ['"carryFrom": "step-11", ', ''],
      ['"samples": 8', '"samples": 2'],
      ['"maxTokensPerTurn": 1024', '"maxTokensPerTurn": 48'],
    ],
    prints: '"batchId":"step-12"',
  },
  "curl -sN 'localhost:8700/v1/batches/step-12/groups?trajectories=true'": {
    ...{ step: 35, as: [LOCAL] },
    prints: '"output_ids"',
  },
  'curl -sN localhost:8700/v1/batches/step-12/events': { step: 36, as: [LOCAL], prints: 'event: ' },

  'rollouts worker --roles init,run': { step: 40, says: 'worker is up' },
  'rollouts worker --roles workflow,eval': { step: 41, says: 'worker is up' },
  'rollouts host': {
    step: 42,
    as: [['rollouts', 'ROLLOUTS_STATE_FOLDER={other} ROLLOUTS_SANDBOX_HOST=second rollouts']],
    says: 'sandbox host is up',
  },
  'npx rollouts pool list': { step: 50, prints: 'active' },
  'npx rollouts pool add vllm=http://gpu-5:8000 --tokenizer ~/models/Qwen3-8B --version 12': {
    // Another model than the one that is there, so beside it.
    ...{ step: 51, as: [SERVER, TOKENIZER, ['--version 12', '--version 12 --labels other']] },
    prints: '{vllm}',
  },
  'npx rollouts pool drain http://gpu-5:8000': { step: 52, as: [SERVER] },
  'npx rollouts pool remove http://gpu-5:8000': { step: 53, as: [SERVER] },
  'npx rollouts pool swap --mode blueGreen --version 13 llama.cpp=http://gpu-6:8080': {
    step: 54,
    as: [['llama.cpp=http://gpu-6:8080', 'vllm={vllm} --tokenizer {tokenizer}']],
    prints: '13',
  },
  'npx rollouts pool swap --version 13 --folder /checkpoints/13': {
    ...{ step: 55, as: [['--version 13 --folder /checkpoints/13', '--version 14 --folder /checkpoints/14']] },
    prints: '14',
  },
  'npx rollouts pool floor 12': { step: 56, prints: 'floor 12' },
  'npx rollouts pool label http://gpu-7:8000 judge': {
    ...{ step: 57, as: [['http://gpu-7:8000', '{vllm}']] },
    prints: 'judge',
  },
  'rollouts codec-server': { step: 60, as: [WITH_KEYS], says: 'Server listening at' },
  'temporal workflow show -w <rollout> --codec-endpoint http://127.0.0.1:8701': {
    ...{ step: 61, as: [ROLLOUT, ['8701', '{codecPort}']] },
    prints: 'WorkflowExecutionCompleted',
  },
  'rollouts host drain --within 1800': { step: 62 },
  'temporal worker deployment set-ramping-version --deployment-name rollouts --build-id 2026-12-01 --percentage 10':
    { file: 'chaos/hosts.ts', has: 'set-ramping-version' },
  'temporal worker deployment set-current-version --deployment-name rollouts --build-id 2026-12-01': {
    file: 'chaos/hosts.ts',
    has: 'set-current-version',
  },
  'temporal worker deployment describe --name rollouts': { file: 'chaos/hosts.ts', has: "'describe'" },
  'export ROLLOUTS_TEMPORAL_ENCRYPTION_KEYS=/etc/rollouts/keys.json': {
    file: 'test/temporal-config/encryption.test.ts',
    has: 'encryptionKeys',
  },
  'rollouts key add 2026-11': {
    ...{ step: 59, as: [WITH_KEYS] },
    prints: '2026-11',
  },
  'OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 npm start': {
    file: 'test/tracing/endpoint.test.ts',
    has: 'OTEL_EXPORTER_OTLP_ENDPOINT',
  },

  'pip install ./clients/python': { file: 'test/python-client/client.long.test.ts', has: 'clients' },
  'python3 -m venv /opt/mini-swe-agent && /opt/mini-swe-agent/bin/pip install mini-swe-agent==2.4.6': AGENT,
  'npm start -- --no-sample --handlers ./examples/handlers/mini-swe-agent.ts': AGENT,
  'ROLLOUTS_ROLLOUT_LIMITS_MAX_TURNS=30 npx rollouts run --tasks examples/tasks/repairs.jsonl --handler mini-swe-agent --handlers ./examples/handlers/mini-swe-agent.ts':
    AGENT,
  'rollouts image build my-image.def': { file: 'test/apptainer/images.test.ts', has: "'image', 'build'" },
  'rollouts image build image.tar --out /images/swe.sif': {
    file: 'test/apptainer/images.test.ts',
    has: "'image', 'build'",
  },

  'npm run chaos': { byHand: 'chaos/main.ts' },
  'npm run chaos -- --seed 7 --rounds 3': { byHand: 'chaos/main.ts' },
  'npm run chaos -- --short --faults killRun,stopRun --keep': {
    file: 'test/chaos/short.test.ts',
    has: '--short',
  },

  'cd temporal-config/production': SERVER_UP,
  './install.sh /opt/temporal': SERVER_UP,
  'export TEMPORAL_PROGRAMS=/opt/temporal SQL_HOST=db.example.org SQL_PASSWORD=…': SERVER_UP,
  './database.sh': { file: 'scripts/production/main.ts', has: 'database.sh' },
  './serve.sh': { file: 'chaos/temporal.ts', has: 'serve.sh' },
  'pg_dump --format=custom --file=temporal.dump temporal': {
    file: 'scripts/production/restore.ts',
    has: "'pg_dump', '--format=custom'",
  },
  'pg_dump --format=custom --file=visibility.dump temporal_visibility': {
    file: 'scripts/production/restore.ts',
    has: "'pg_dump', '--format=custom'",
  },
  'rsync -a --delete /srv/rollouts/ backup:/rollouts/': { checked: 'docs/operations.md' },
  "systemctl stop 'rollouts-worker@*' rollouts-host": { checked: 'temporal-config/production/systemd' },
  'docker build -f temporal-config/production/Dockerfile --target temporal -t temporal-server:1.32.2 .':
    DOCKER,
  'export ROLLOUTS_CHECKOUT=… ROLLOUTS_SHARED=… ROLLOUTS_DATABASE=… TEMPORAL_PROGRAMS=…': SLURM,
};

/** The same for commands that begin so, whatever their flags. */
const BEGINNINGS: Readonly<Record<string, RunBy>> = {
  'npm run train:example': TRAINING,
  'kubectl ': KUBERNETES,
  'docker build ': DOCKER,
  'sbatch ': SLURM,

  'cd /opt/rollouts && npm ci': SYSTEMD,
  'cp /opt/rollouts/temporal-config/production/systemd/': SYSTEMD,
  'install -': SYSTEMD,
  'useradd --system ': SYSTEMD,
  'systemctl enable ': SYSTEMD,
  'systemd-run ': SYSTEMD,
};

/** Undefined: nobody. */
export function runBy(command: string): RunBy | undefined {
  const beginning = Object.keys(BEGINNINGS).find((each) => command.startsWith(each));
  return COMMANDS[command] ?? (beginning === undefined ? undefined : BEGINNINGS[beginning]);
}
