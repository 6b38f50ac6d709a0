import type { HostState } from '../hosts.ts';
import { CONTROL } from '../printable.ts';
import type { BatchSummary, Part, PoolSummary, QueueState, RolloutCounts, TopState } from './state.ts';
import { MINUTES } from './state.ts';

/** How lines are marked; the identity where nothing is. */
export interface Marks {
  readonly heading: (text: string) => string;
  readonly problem: (text: string) => string;
}

/**
 * A state as lines, each at most so wide. Pure. What others have written (ids, reasons) cannot steer the terminal:
 * control characters are replaced.
 */
export function linesOf(state: TopState, width: number, { heading, problem }: Marks): string[] {
  const cut = (line: string) => {
    const safe = line.replaceAll(CONTROL, '\uFFFD');
    return safe.length > width ? `${safe.slice(0, Math.max(0, width - 1))}…` : safe;
  };
  const section = <T>(title: string, part: Part<T>, rows: (value: T) => readonly (readonly string[])[]) => {
    if ('problem' in part) return ['', heading(cut(title)), problem(cut(`no answer: ${part.problem}`))];
    const [head, ...rest] = columns(rows(part.value));
    return ['', heading(cut(head ?? title)), ...rest.map(cut)];
  };
  const { at, temporal, rollouts, queues, hosts, pool, batches } = state;
  return [
    heading(cut(`Rollouts at ${temporal}, ${at.slice(11, 19)} UTC`)),
    ...('problem' in rollouts
      ? [problem(cut(`no answer: ${rollouts.problem}`))]
      : countLines(rollouts.value).map(cut)),
    ...section('QUEUE', queues, queueRows),
    ...section('HOST', hosts, hostRows),
    ...section('LLM SERVER', pool, poolRows),
    ...section('BATCH', batches, batchRows),
  ];
}

function countLines({ stages, ended, endedInLastMinute }: RolloutCounts): string[] {
  const named = (counts: Readonly<Record<string, number>>) =>
    Object.entries(counts).map(([name, count]) => `${count} ${name}`);
  const all = Object.values(ended).reduce((sum, count) => sum + count, 0);
  const { other, ...outcomes } = ended;
  return [
    `open      ${named(stages).join('   ')}`,
    `${MINUTES} min    ${named(outcomes).join('   ')}${other > 0 ? `   ${other} closed from outside` : ''}`,
    `ended     ${(all / MINUTES).toFixed(1)} per minute, ${endedInLastMinute} in the last`,
  ];
}

function queueRows(queues: readonly QueueState[]): string[][] {
  return [
    ['QUEUE', 'WAITING', 'OLDEST', 'IN/S', 'OUT/S', 'WORKERS'],
    ...queues.map(({ queue, waiting, oldestSeconds, inPerSecond, outPerSecond, workers }) => [
      queue,
      String(waiting),
      waiting === 0 ? '-' : `${oldestSeconds} s`,
      inPerSecond.toFixed(1),
      outPerSecond.toFixed(1),
      workers === 0 ? 'NONE' : String(workers),
    ]),
  ];
}

function hostRows(hosts: readonly HostState[]): string[][] {
  if (hosts.length === 0) return [['HOST'], ['none is up: rollouts wait']];
  return [
    ['HOST', 'AGENTS', 'GRADERS', 'BACKEND'],
    ...hosts.map(({ host, stats }) =>
      stats
        ? [
            host,
            `${stats.sandboxes}/${stats.capacity}`,
            `${stats.graders}/${stats.graderCapacity}`,
            stats.backend,
          ]
        : [host, '-', '-', 'no heartbeat yet'],
    ),
  ];
}

function poolRows({ pool, floor, runWorkers, servers }: PoolSummary): string[][] {
  const title = `POOL ${pool}: floor ${floor}, ${runWorkers} run workers`;
  if (servers.length === 0) return [[title], ['no server: rollouts wait']];
  return [
    ['LLM SERVER', 'VERSION', 'RUNNING', 'WAITING', 'KIND', 'STATE'],
    ...servers.map(({ url, version, load, dialect, labels, state, why }) => {
      const told = 'value' in load ? load.value : null;
      const trouble = 'problem' in load ? load.problem : why;
      return [
        url,
        String(version),
        told ? String(told.running) : '-',
        told ? String(told.waiting) : '-',
        dialect,
        `${state} (${labels.join(', ')})${trouble === null ? '' : `: ${trouble}`}`,
      ];
    }),
    [title],
  ];
}

function batchRows(batches: readonly BatchSummary[]): string[][] {
  if (batches.length === 0) return [['BATCH'], ['none is open']];
  return [
    ['BATCH', 'GROUPS', 'OPEN', 'DROPPED', 'MEAN REWARD'],
    ...batches.map(({ batchId, status }) => {
      if ('problem' in status) return [batchId, `no answer: ${status.problem}`];
      const { admitted, wanted, open, dropped, rewardMean } = status.value;
      return [batchId, `${admitted}/${wanted}`, String(open), String(dropped), rewardMean?.toFixed(3) ?? '-'];
    }),
  ];
}

/** Cells under each other; a row of one cell is a line of its own. */
function columns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    if (row.length === 1) continue;
    for (const [at, cell] of row.entries()) {
      if (at < row.length - 1) widths[at] = Math.max(widths[at] ?? 0, cell.length);
    }
  }
  return rows.map((row) =>
    row.map((cell, at) => (at < row.length - 1 ? cell.padEnd(widths[at] ?? 0) : cell)).join('  '),
  );
}
