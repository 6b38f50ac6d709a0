import { parseArgs } from 'node:util';
import { type ProductionServer, readProduction } from '../chaos/temporal.ts';
import { benchBalance } from './balance.ts';
import { benchBash } from './bash.ts';
import { benchCancel } from './cancel.ts';
import { benchConversation } from './conversation.ts';
import { benchGateway } from './gateway.ts';
import { benchGraders } from './graders.ts';
import { benchInstrumentation } from './instrumentation.ts';
import { benchLatency } from './latency.ts';
import { benchOverhead } from './overhead.ts';
import { benchHosts } from './pipeline/hosts.ts';
import { benchPipeline } from './pipeline/pipeline.ts';
import { benchSandbox } from './sandbox.ts';
import { benchScale } from './scale.ts';

/** What every benchmark prints, as its last line. */
export interface BenchResult {
  readonly bench: string;
  /** How often the main thing was measured. */
  readonly n: number;
  /** Figures with their unit in the name. */
  readonly [figure: string]: number | string | null | Record<string, unknown>;
  readonly peers: Record<string, Record<string, unknown>>;
  /** How many times better than that peer. */
  readonly ratios: Record<string, number | null>;
}

export interface BenchOptions {
  /** Null: what the benchmark thinks right. */
  readonly n: number | null;
  /** False: only ourselves. */
  readonly peers: boolean;
  /** Temporal server to measure with, where the benchmark starts one; the development server if undefined. */
  readonly production: ProductionServer | undefined;
  readonly say: (line: string) => void;
}

const BENCHES: Record<string, (options: BenchOptions) => Promise<BenchResult>> = {
  balance: benchBalance,
  bash: benchBash,
  cancel: benchCancel,
  conversation: benchConversation,
  hosts: benchHosts,
  instrumentation: benchInstrumentation,
  latency: benchLatency,
  gateway: benchGateway,
  graders: benchGraders,
  overhead: benchOverhead,
  pipeline: benchPipeline,
  sandbox: benchSandbox,
  scale: benchScale,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { n: { type: 'string' }, 'no-peers': { type: 'boolean' }, production: { type: 'string' } },
});
const [name = ''] = positionals;
const bench = BENCHES[name];
const n = values.n === undefined ? null : Number(values.n);
if (!bench || (n !== null && !(Number.isInteger(n) && n > 0))) {
  process.stderr.write(
    `npm run bench -- <${Object.keys(BENCHES).join('|')}> [--n <times>] [--no-peers] [--production <file>]\n`,
  );
  process.exit(2);
}
const result = await bench({
  n,
  peers: values['no-peers'] !== true,
  production: readProduction(values.production),
  say: (line) => process.stdout.write(`${line}\n`),
});
process.stdout.write(`${JSON.stringify(result)}\n`);
