import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { PolicyServer } from '../../chaos/policy-server.ts';
import type { ChaosTask } from '../../chaos/tasks.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { Account } from './account.ts';
import type { SlurmCluster } from './cluster.ts';
import { Trainer } from './trainer.ts';

const SCRIPTS = 'temporal-config/production/slurm';
const CALM = 6;
const TROUBLED = 8;
/** Milliseconds between two parts of an answer: while there is trouble no rollout is to end. */
const SLOW = { tokens: 2, ms: 3000 };
const FAST = { tokens: 1000, ms: 0 };
/** Seconds before its end at which a job is told of it: half of them for rollouts that end, the rest for those that move. */
const WARNED_SECONDS = 180;
const PATIENCE_MS = 600_000;

/** Where the story takes place. */
export interface Scene {
  readonly cluster: SlurmCluster;
  readonly account: Account;
  readonly policy: PolicyServer;
  /** The user's environment. */
  readonly settings: Readonly<Record<string, string>>;
  /** What is other where the server's second job runs: another port stands for another node. */
  readonly elsewhere: Readonly<Record<string, string>>;
  readonly say: (line: string) => void;
}

/** Rollouts that are on their way. */
interface Flight {
  readonly records: Promise<RolloutResult[]>;
}

/** What happens to the jobs, and what has to be so after each of it. */
export class Story {
  private readonly scene: Scene;
  private readonly problems: string[] = [];
  private trainer!: Trainer;

  constructor(scene: Scene) {
    this.scene = scene;
  }

  /** What is wrong, as sentences. */
  async tell(): Promise<string[]> {
    const { policy, say } = this.scene;
    const server = await this.submit('server.sbatch');
    await this.until('the gateway is told', async () => {
      await this.expectToRun(server);
      return (await this.shared('gateway')) !== '' && (await this.shared('address')) !== '';
    });
    this.trainer = new Trainer(() => this.shared('gateway'), await this.shared('trainer-token'));
    const first = await this.submit('workers.sbatch', '--nodes=2');
    const [dying, kept] = (await this.hostsOf(first, 2)) as [string, string];
    say(`server and hosts are up: ${dying}, ${kept}`);
    await this.trainer.addServer(policy.url);

    const calm = await this.flight('calm', CALM);
    this.judge(await calm.records, () => []);
    say(`${CALM} rollouts ended undisturbed`);
    await this.nodeDies(dying, kept, first);
    await this.timeIsUp(kept);
    await this.cancelled(kept);
    await this.serverMoves(server, kept);
    await this.preempted(first, kept);
    return this.problems;
  }

  /** A node goes without a word; its job stays on the other, and what ran there begins again. Then it is repaired. */
  private async nodeDies(dying: string, kept: string, job: string): Promise<void> {
    const { cluster, say } = this.scene;
    const flight = await this.flight('died', TROUBLED, [dying, kept]);
    const struck = await this.on(dying);
    const node = nodeOf(dying);
    say(`${node} dies: ${await cluster.killNode(node, job)} processes, ${struck.length} rollouts`);
    await this.elsewhere(struck, dying);
    await this.until(`Slurm has lost ${node}`, async () => (await cluster.stateOf(node)).startsWith('down'));
    this.expect((await cluster.jobState(job)) === 'RUNNING', `job ${job} did not outlive one of its nodes`);
    await this.land(flight, ({ rolloutId, retried, attempt }) => {
      const lost = retried.filter(({ type }) => /^(HostLost|SandboxLost|WorkerLost)$/.test(type));
      const again = lost.length > 0 && attempt > 1;
      if (struck.includes(rolloutId)) return again ? [] : ['did not begin again, though its node died'];
      return again ? ['began again, though its node lived'] : [];
    });
    cluster.startNode(node);
    await this.until(`${node} is back`, async () => (await cluster.stateOf(node)) === 'idle');
  }

  /** More nodes are another job; before its time is up it takes no new rollouts, and those it has go on elsewhere. */
  private async timeIsUp(kept: string): Promise<void> {
    const { account, cluster, say, settings } = this.scene;
    const job = await this.submit(
      'workers.sbatch',
      '--nodes=1',
      '--time=60',
      `--signal=B:USR1@${WARNED_SECONDS}`,
    );
    const since = Date.now();
    const [host] = (await this.hostsOf(job, 1)) as [string];
    const flight = await this.flight('timed', TROUBLED, [host, kept]);
    const struck = await this.on(host);
    const minutes = Math.ceil((Date.now() - since) / 60_000 + WARNED_SECONDS / 60);
    await account.sh(`scontrol update JobId=${job} TimeLimit=${minutes}`, settings);
    say(`job ${job} has ${struck.length} rollouts, and ends in less than ${WARNED_SECONDS + 60} seconds`);
    await this.ended(job);
    const state = await cluster.jobState(job);
    this.expect(state === 'COMPLETED', `job ${job} did not leave in time: ${state}`);
    await this.elsewhere(struck, host);
    await this.land(flight, ({ retried, attempt }) =>
      retried.length > 0 || attempt > 1 ? [`did not go on where it was: ${JSON.stringify(retried)}`] : [],
    );
    await this.gone(host);
    say(`job ${job} ended as ${state}; what ran there went on elsewhere`);
  }

  /** `scancel` of a job while rollouts run in it. */
  private async cancelled(kept: string): Promise<void> {
    const { account, say, settings } = this.scene;
    const job = await this.submit('workers.sbatch', '--nodes=1');
    const [host] = (await this.hostsOf(job, 1)) as [string];
    const flight = await this.flight('cancelled', TROUBLED, [host, kept]);
    const struck = await this.on(host);
    const since = Date.now();
    await account.sh(`scancel ${job}`, settings);
    await this.ended(job);
    const seconds = ((Date.now() - since) / 1000).toFixed(0);
    await this.elsewhere(struck, host);
    await this.gone(host);
    const records = await this.land(flight, () => []);
    const wentOn = records.filter(({ rolloutId, attempt }) => struck.includes(rolloutId) && attempt === 1);
    say(
      `scancel took ${seconds} s; of the ${struck.length} rollouts ${wentOn.length} went on elsewhere, the others began again`,
    );
  }

  /** The server's job ends and another begins at another place: nodes and trainer follow. */
  private async serverMoves(server: string, kept: string): Promise<void> {
    const { account, say, settings, elsewhere } = this.scene;
    const flight = await this.flight('server', CALM, [kept]);
    await account.sh(`scancel ${server}`, settings);
    await this.ended(server);
    const second = await this.submit('server.sbatch', { ...elsewhere });
    const address = `${settings.TEMPORAL_BROADCAST_IP}:${elsewhere.TEMPORAL_PORT}`;
    await this.until('the server is elsewhere', async () => {
      await this.expectToRun(second);
      return (await this.shared('address')) === address;
    });
    await this.land(flight, () => []);
    const hosts = await this.trainer.hosts();
    this.expect(
      hosts.some(({ host, stats }) => host === kept && stats !== null),
      `${kept} did not follow the server`,
    );
    say('the server has moved while rollouts ran');
  }

  /** A job of more weight takes the last node; the job that had it is queued, and comes back by itself. */
  private async preempted(job: string, host: string): Promise<void> {
    const { account, cluster, say, settings } = this.scene;
    const flight = await this.flight('preempted', CALM, [host]);
    await account.sh(
      `sbatch --partition=urgent --nodelist=${nodeOf(host)} --cpus-per-task=32 --wrap='sleep 5'`,
      settings,
    );
    await this.until(`job ${job} is preempted`, async () => (await cluster.jobState(job)) === 'PENDING');
    say(`job ${job} was preempted`);
    await this.until(`job ${job} runs again`, async () => (await cluster.jobState(job)) === 'RUNNING');
    await this.land(flight, () => []);
    say(`job ${job} came back, and so did its rollouts`);
  }

  /** Begins rollouts; returns when all run, on each of these hosts some. */
  private async flight(name: string, count: number, hosts: readonly string[] = []): Promise<Flight> {
    this.scene.policy.pace = hosts.length > 0 ? SLOW : FAST;
    const each = tasks(name, count).map(async (task) => {
      await this.trainer.begin(task.name, task);
      return this.trainer.record(task.name);
    });
    const records = Promise.all(each);
    records.catch(() => {}); // awaited when it lands
    if (hosts.length > 0) {
      await this.until(`${count} rollouts run on ${hosts.join(' and ')}`, async () => {
        const on = await Promise.all(hosts.map((host) => this.on(host)));
        return on.every((some) => some.length > 0) && on.flat().length === count;
      });
    }
    return { records };
  }

  /** All of it ends well. */
  private async land(
    { records }: Flight,
    other: (record: RolloutResult) => string[],
  ): Promise<readonly RolloutResult[]> {
    this.scene.policy.pace = FAST;
    const ended = await records;
    this.judge(ended, other);
    return ended;
  }

  /** A host that was stopped in order has taken its leave; one that was killed would be waited for. */
  private async gone(host: string): Promise<void> {
    const hosts = await this.trainer.hosts();
    this.expect(!hosts.some((one) => one.host === host), `${host} went without a word`);
  }

  private elsewhere(rolloutIds: readonly string[], host: string): Promise<void> {
    return this.until(`what ran on ${host} runs elsewhere`, async () => {
      const open = await this.trainer.open();
      return open.every(
        (row) => !rolloutIds.includes(row.rolloutId) || (row.stage === 'run' && row.host !== host),
      );
    });
  }

  private ended(job: string): Promise<void> {
    return this.until(
      `job ${job} has ended`,
      async () => !/RUNNING|COMPLETING/.test(await this.scene.cluster.jobState(job)),
    );
  }

  private judge(records: readonly RolloutResult[], other: (record: RolloutResult) => string[]): void {
    for (const record of records) {
      const { rolloutId, outcome, reward, failure } = record;
      const found = other(record);
      if (outcome !== 'completed') found.push(`ended as ${outcome}: ${failure?.message ?? ''}`);
      if (reward?.total !== 1 || reward.parts.ran !== reward.parts.asked) {
        found.push(`was graded ${JSON.stringify(reward)}`);
      }
      this.problems.push(...found.map((problem) => `${rolloutId}: ${problem}`));
    }
  }

  private expect(isSo: boolean, otherwise: string): void {
    if (!isSo) this.problems.push(otherwise);
  }

  /** A file of the shared folder; empty: not yet. */
  private shared(name: string): Promise<string> {
    const file = `${this.scene.settings.ROLLOUTS_SHARED}/${name}`;
    return readFile(file, 'utf8').then(
      (text) => text.trim(),
      () => '',
    );
  }

  /** @throws Error if it has ended, which would be waited for in vain */
  private async expectToRun(job: string): Promise<void> {
    const state = await this.scene.cluster.jobState(job);
    if (!/PENDING|RUNNING|CONFIGURING/.test(state)) throw new Error(`job ${job} ended as ${state}`);
  }

  private submit(script: string, ...flags: (string | Record<string, string>)[]): Promise<string> {
    const { account, settings } = this.scene;
    const own = Object.assign({}, ...flags.filter((flag) => typeof flag !== 'string'));
    const words = flags.filter((flag) => typeof flag === 'string').join(' ');
    return account.sh(`sbatch --parsable ${words} ${SCRIPTS}/${script}`, { ...settings, ...own });
  }

  private async hostsOf(job: string, count: number): Promise<string[]> {
    let found: string[] = [];
    await this.until(`job ${job} has ${count} hosts`, async () => {
      const hosts = await this.trainer.hosts();
      found = hosts
        .map(({ host }) => host)
        .filter((host) => host.endsWith(`-${job}`))
        .sort();
      return found.length === count;
    });
    return found;
  }

  /** Rollouts whose agents run on a host. */
  private async on(host: string): Promise<string[]> {
    const open = await this.trainer.open();
    return open.filter((row) => row.host === host && row.stage === 'run').map(({ rolloutId }) => rolloutId);
  }

  /** @throws Error with what was waited for */
  private async until(what: string, isSo: () => Promise<boolean>): Promise<void> {
    const giveUpAt = Date.now() + PATIENCE_MS;
    while (!(await isSo())) {
      if (Date.now() > giveUpAt) throw new Error(`not so after ${PATIENCE_MS / 1000} s: ${what}`);
      await delay(1000);
    }
  }
}

function tasks(name: string, count: number): ChaosTask[] {
  return Array.from({ length: count }, (_, index) => ({
    name: `${name}-${index}`,
    kind: 'usual',
    turns: 9 + (index % 4),
  }));
}

function nodeOf(host: string): string {
  return host.replace(/-\d+$/, '');
}
