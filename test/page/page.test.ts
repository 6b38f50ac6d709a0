import assert from 'node:assert/strict';
import path from 'node:path';
import { after, test } from 'node:test';
import { Context } from '@temporalio/activity';
import type { Browser, Page } from 'playwright-core';
import { readTokenizerFolder, type TokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { showCommand } from '../../client/commands/inspect.ts';
import { loadConfig } from '../../config/load.ts';
import { served } from '../gateway/served.ts';
import { hasBrowser, startBrowser } from '../support/browser.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { until } from '../support/until.ts';
import { gate } from '../workflows/kept.ts';
import { fail, report, usual } from '../workflows/scripted.ts';
import { evaluateKeeping, ledgerOf, type Said } from './recorded.ts';

const skip = !hasBrowser && !process.env.CI && 'no Chromium on this machine';
const service = served();
const { store } = service;

/** What all tests share, made when the service stands. */
interface Shared {
  readonly tokenizer: TokenizerFolder;
  readonly browser: Browser;
  readonly url: string;
}
let sharing: Promise<Shared> | undefined;
function shared(): Promise<Shared> {
  sharing ??= (async () => {
    const tokenizer = await readTokenizerFolder(await tokenizerFolder('smollm2', service.folder));
    const servers = [{ url: 'http://127.0.0.1:1', dialect: 'vllm', tokenizer: tokenizer.folder }];
    const { url } = await service.gateway({ llm: { servers } });
    return { tokenizer, url, browser: await startBrowser() };
  })();
  return sharing;
}
after(async () => (await sharing)?.browser.close());

/** A window on a place of the page. What it cannot do without a message is an error of the test. */
async function open(place: string, at?: string): Promise<Page> {
  const { browser, url } = await shared();
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(240_000); // as `until`: a loaded machine may take its time
  page.on('pageerror', (error) => assert.fail(error));
  await page.goto(`${at ?? url}/#/${place}`);
  return page;
}

async function shoot(page: Page, name: string): Promise<void> {
  const folder = process.env.SCREENSHOTS;
  if (folder) await page.screenshot({ path: path.join(folder, `${name}.png`) });
}

/** `rollouts show` at this server. */
function shownBy(address: string) {
  const flags = { temporal: { address }, store: { folder: store.folder } };
  const config = loadConfig({ env: {}, flags });
  return async (rolloutId: string) => {
    const notes: string[] = [];
    let text = '';
    const result = (_: unknown, textOf: () => string) => {
      text = textOf();
    };
    await showCommand(config, rolloutId, { json: false, note: (line) => notes.push(line), result });
    return { text, notes };
  };
}

const TASK = { handler: 'math', id: 'lines-1', data: { question: 'q', answer: '#### 2' } };

/** What the store has of a rollout's tokens. */
async function sequenceOf(rolloutId: string) {
  const record = await store.getTerminal(rolloutId);
  const [sequence] = record?.trajectory ? await readTrajectory(record.trajectory) : [];
  assert.ok(sequence);
  return { ids: sequence.output_ids, logprobs: sequence.logprobs, mask: sequence.loss_mask };
}

/** Runs one rollout to its end. */
async function recorded(
  rolloutId: string,
  turns: readonly Said[],
  more: { taskId?: string; batchId?: string; groupId?: string } = {},
) {
  const { tokenizer } = await shared();
  const { script } = service.service.workers;
  script.evaluate = evaluateKeeping(store, await ledgerOf(tokenizer, 'How many lines has a.txt?', turns));
  const { taskId = TASK.id, ...rest } = more;
  return service.service.client.execute({ rolloutId, task: { ...TASK, id: taskId }, ...rest });
}

const TURNS: Said[] = [
  {
    text: 'I count them – 数えます 🦙.\n```bash\nwc -l a.txt\n```',
    command: 'wc -l a.txt',
    output: '2 a.txt\n',
  },
  {
    text: 'No file.',
    command: 'cat b.txt',
    output: 'cat: b.txt: No such file or directory',
    exitCode: 1,
    policyVersion: 4,
  },
  { text: 'There are 2 lines.', policyVersion: 4 },
];

test('a rollout is read as a conversation, with the times of its stages and turns', { skip }, async () => {
  await recorded('lines:0', TURNS, { batchId: 'step-1' });
  const page = await open('rollouts/lines:0');
  await page.getByRole('heading', { level: 1, name: 'Rollout lines:0' }).waitFor();
  const current = page
    .getByRole('banner')
    .getByRole('navigation', { name: 'Pages' })
    .getByRole('link', { name: 'Rollouts' });
  assert.equal(await current.getAttribute('aria-current'), 'page');
  const headings = page.getByRole('main').getByRole('heading', { level: 2 });
  await headings.first().waitFor();
  assert.deepEqual(await headings.allTextContents(), ['Record', 'Reward', 'Times', 'Conversation']);
  const turns = page.getByRole('feed', { name: 'Turns' }).getByRole('article');
  await turns.first().getByText('I count them – 数えます 🦙.').waitFor();
  assert.equal(await turns.count(), 3);
  const second = (await turns.nth(1).textContent()) ?? '';
  for (const part of ['No file.', 'cat b.txt', 'exit code 1', 'No such file or directory', 'version 4']) {
    assert.ok(second.includes(part), `${part} in ${second}`);
  }
  assert.equal(await page.getByRole('row', { name: 'correct 0.5' }).count(), 1);
  assert.equal(await page.getByRole('link', { name: 'step-1' }).getAttribute('href'), '#/batches/step-1');
  await page.getByRole('img', { name: 'LLM: 1.20 s in 3 bars' }).waitFor();
  await page.getByRole('img', { name: 'tools: 240 ms in 2 bars' }).waitFor();
  await page.getByText('Stages as a table (3)').click();
  for (const stage of ['init', 'run', 'evaluate']) {
    assert.equal(
      await page.getByRole('row', { name: new RegExp(`^${stage} rollouts-.*completed`) }).count(),
      1,
    );
  }
  await page.getByText('Turns as a table (3)').click();
  const times = page.getByRole('table', { name: 'Times of turns' });
  await times.getByRole('row', { name: '1 700 ms 400 ms 120 ms 4 bash' }).waitFor();
  await shoot(page, 'rollout');
});

test('tokens are shaded by log-probability, mask and version, and the keyboard reaches each', {
  skip,
}, async () => {
  const page = await open('rollouts/lines:0');
  await page.getByRole('radio', { name: 'log-probability' }).check();
  const group = page.getByRole('group', { name: 'Turn 0, sampled, 29 tokens' });
  const text = async () => (await group.textContent()) ?? '';
  await until(async () => (await text()).includes('🦙'), 'texts of the tokens');
  // Characters of several tokens stand at the first, and nothing is lost.
  assert.equal((await text()).replaceAll(/[·↵]/g, ''), `${TURNS[0]?.text}<|im_end|>`);
  const { logprobs, mask } = await sequenceOf('lines:0');
  const levels = await group.locator('.token').evaluateAll((all) => all.map(({ className }) => className));
  const expected = logprobs.slice(0, 29).map((logprob) => {
    const level = [0.9, 0.5, 0.1, 0.01].findIndex((least) => Math.exp(logprob) >= least);
    return `token p${level < 0 ? 4 : level}`;
  });
  assert.deepEqual(levels, expected);
  await group.focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  const line = page.getByRole('status', { name: 'Token' });
  const second = (logprobs[1] as number).toFixed(4).replace(/0+$/, '').replace('-', '−');
  await until(
    async () => (await line.textContent())?.includes(`log-probability ${second}`) === true,
    'the second token',
  );
  assert.match(
    (await line.textContent()) ?? '',
    /^\s*output token 1 · id \d+ " count" .* mask 1 · version 3\s*$/,
  );
  await page.getByRole('radio', { name: 'loss mask' }).check();
  const masks = await page
    .locator('article .token')
    .evaluateAll((all) => all.map(({ className }) => className));
  assert.deepEqual(
    masks,
    mask.map((one) => (one === 1 ? 'token m1' : 'token given')),
  );
  await page.getByRole('radio', { name: 'policy version' }).check();
  // In words too: color is not all that tells versions apart.
  await until(async () => (await page.locator('article .tag').count()) === 3, 'versions in words');
  assert.deepEqual(await page.locator('article .tag').allInnerTexts(), ['v3', 'v4', 'v4']);
  await shoot(page, 'versions');
});

test('token ids are shown, with the reason, where no tokenizer is known', { skip }, async () => {
  const { url } = await service.gateway();
  const page = await open('rollouts/lines:0?shade=logprob', url);
  await page.getByText('Token ids are shown: no LLM server that is known here has the tokenizer').waitFor();
  const { ids } = await sequenceOf('lines:0');
  const group = page.getByRole('group', { name: 'Turn 0, sampled' });
  assert.equal((await group.textContent())?.trim(), ids.slice(0, 29).join(' '));
});

/** Elements of the page, whatever the length of a rollout. */
const MOST_ELEMENTS = 4_000;

test('500 turns of 100,000 tokens are a few thousand elements, and arrows go through them', {
  skip,
}, async () => {
  const long = Array.from({ length: 500 }, (_, turn) => ({
    text: `Turn ${turn}: ${'the quick brown fox jumps over the lazy dog, '.repeat(11)}`,
    command: `sed -n ${turn}p a.txt`,
    output: 'some output of the tool and more of it. '.repeat(8),
  }));
  const { trajectory } = await recorded('long:0', long);
  assert.ok((trajectory?.outputTokens ?? 0) > 100_000);
  const page = await open('rollouts/long:0?shade=logprob');
  const elements = () => page.evaluate('document.querySelectorAll("*").length') as Promise<number>;
  const focused = () => page.evaluate('document.activeElement.id') as Promise<string>;
  const first = page.getByRole('article', { name: 'Turn 0 of 499' });
  await first.getByText('<|im_end|>').first().waitFor();
  assert.ok((await elements()) < MOST_ELEMENTS, `${await elements()}`);
  await shoot(page, 'long');
  await first.focus();
  for (const key of ['ArrowDown', 'ArrowDown', 'j', 'ArrowUp']) await page.keyboard.press(key);
  assert.equal(await focused(), 'turn-2');
  await page.keyboard.press('End');
  await page.getByRole('article', { name: 'Turn 499 of 499' }).getByText('<|im_end|>').first().waitFor();
  assert.equal(await focused(), 'turn-499');
  assert.ok((await elements()) < MOST_ELEMENTS, `${await elements()}`);
  await page.getByRole('spinbutton', { name: 'Turn' }).fill('250');
  await page.keyboard.press('Enter');
  await page.getByRole('article', { name: 'Turn 250 of 499' }).getByText('<|im_end|>').first().waitFor();
  assert.equal(await focused(), 'turn-250');
  // As a reader goes away from there; until then it is kept where it is.
  await page.mouse.wheel(0, -100);
  await page.getByText('Turns as a table (500)').click();
  await page.getByRole('table', { name: 'Times of turns' }).getByRole('row').nth(1).waitFor();
  assert.ok((await elements()) < MOST_ELEMENTS, `${await elements()}`);
});

test('what a model, a tool or a task says is text, whatever it says', { skip }, async () => {
  const evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';
  const link = 'javascript:window.hacked=1//"><svg onload=window.hacked=1>';
  const turns = [{ text: evil, command: evil, output: `${evil}\u001b]8;;${link}` }, { text: `[x](${link})` }];
  await recorded('evil:0', turns, { taskId: evil, batchId: link });
  service.service.workers.script.init = async () => fail('InvalidTask', `data: ${evil}`);
  await recorded('evil:1', turns, { taskId: evil, batchId: link });
  for (const place of [
    'rollouts/evil:0',
    'rollouts/evil:0?shade=mask',
    'rollouts/evil:1',
    'rollouts',
    'batches/x',
  ]) {
    const page = await open(place);
    const refused: string[] = [];
    page.on(
      'console',
      (message) => message.text().includes('Content Security') && refused.push(message.text()),
    );
    await page
      .getByText(place.startsWith('batches') ? 'No workflow of this batch is known' : '<img')
      .first()
      .waitFor();
    await page.evaluate('for (const one of document.querySelectorAll("details")) one.open = true');
    assert.deepEqual(await page.locator('main :is(img, script, iframe, svg[onload])').count(), 0, place);
    const hrefs = await page.locator('a').evaluateAll((all) => all.map((a) => a.getAttribute('href')));
    assert.deepEqual(
      hrefs.filter((href) => !/^(#|http)/.test(href ?? '')),
      [],
    );
    assert.equal(await page.evaluate('window.hacked'), undefined);
    assert.deepEqual(refused, [], 'nothing was even tried');
  }
  const policy = (await fetch(`${(await shared()).url}/`)).headers.get('content-security-policy') ?? '';
  for (const part of ["default-src 'none'", "script-src 'self'", "trusted-types 'none'"])
    assert.ok(policy.includes(part));
  assert.doesNotMatch(policy, /unsafe|\*/);
});

test('a failed rollout says what to do; one that runs is followed turn by turn to its record', {
  skip,
}, async () => {
  const { script } = service.service.workers;
  script.init = async () => fail('InvalidTask', 'data.answer: missing');
  await service.service.client.execute({ rolloutId: 'wrong:0', task: TASK });
  const failed = await open('rollouts/wrong:0');
  await failed.getByText('InvalidTask in init, attempt 1; caused by the request').waitFor();
  await failed.getByText('Correct the named field of the task').waitFor();
  await failed.getByText('It ended before its first token').waitFor();

  Object.assign(script, usual);
  const goOn = gate();
  script.run = async () => {
    const context = Context.current();
    const beat = () => context.heartbeat({ turn: 7, tokens: 1234, ms: 5 });
    beat();
    // The worker is well, however long a loaded machine takes to look at it.
    const beats = setInterval(beat, 1000);
    await goOn.passed;
    clearInterval(beats);
    return report;
  };
  const ledger = await ledgerOf((await shared()).tokenizer, 'How many lines has a.txt?', TURNS);
  // Its host has the prompt, the first turn and a call that runs.
  let there = 2;
  script.copySoFar = (key) => store.putSoFar(key, ledger.slice(0, there));
  const ended = recorded('open:0', TURNS);
  await until(
    async () => (await service.service.client.stageOf('open:0').catch(() => null)) === 'run',
    'it runs',
  );
  const page = await open('rollouts/open:0');
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  await page.getByText('turn 7, 1,234 tokens (last heartbeat)').waitFor();
  const turns = page.getByRole('feed', { name: 'Turns' }).getByRole('article');
  const underWay = page.getByRole('status', { name: 'Under way' });
  await underWay.getByText('So far; turn 0 has called bash.').waitFor();
  assert.equal(await turns.count(), 1);
  assert.equal(await turns.first().getByText('2 a.txt').count(), 0);
  there = 4;
  await underWay.getByText('So far; turn 1 has called bash.').waitFor();
  await turns.first().getByText('2 a.txt').waitFor();
  await page.getByRole('radio', { name: 'log-probability' }).check();
  await page.getByRole('group', { name: 'Turn 1, sampled' }).getByText('<|im_end|>').waitFor();
  await shoot(page, 'running');
  // What is known stays while its host is away.
  const show = shownBy(service.service.address);
  assert.match((await show('open:0')).text, /"stage": "run"[\s\S]*── assistant ──\nI count them/);
  script.copySoFar = () => fail('HostUnreachable', 'no such socket');
  await page.getByRole('alert').getByText('host host-a does not answer: no such socket').waitFor();
  assert.equal(await turns.count(), 2);
  const silent = await show('open:0');
  assert.match(silent.text, /"stage": "run"/);
  assert.match(silent.notes.join(), /host host-a does not answer: no such socket/);
  const told = `${(await shared()).url}/v1/rollouts/open:0/conversation`;
  script.copySoFar = async () => {};
  await until(async () => (await fetch(told)).ok, 'its host is back');
  const answer = await fetch(told);
  const { sequences } = (await answer.json()) as { sequences: { output_ids: number[] }[] };
  const headers = { 'If-None-Match': answer.headers.get('etag') as string };
  assert.equal((await fetch(told, { headers })).status, 304);
  goOn.open();
  await ended;
  const { ids } = await sequenceOf('open:0');
  assert.deepEqual(sequences[0]?.output_ids, ids.slice(0, sequences[0]?.output_ids.length));
  await page.getByRole('heading', { name: 'Record' }).waitFor();
  assert.equal(await turns.count(), 3);
  assert.equal((await fetch(told)).status, 409);
});

test('rollouts of a group and a batch that no workflow keeps, as `rollouts run` begins them, are shown', {
  skip,
}, async () => {
  await recorded('run:0', TURNS, { batchId: 'run', groupId: 'run:lines' });
  const page = await open('rollouts/run:0');
  await page.getByRole('link', { name: 'run:lines' }).click();
  await page.getByText('No workflow of this group is known').waitFor();
  const sample = page.locator('.sample');
  await sample.getByText('There are 2 lines.').waitFor();
  assert.match((await sample.textContent()) ?? '', /run:0.*completed.*reward 0\.5/);
  await page.goto(page.url().replace(/#.*/, '#/batches/run'));
  await page.getByRole('link', { name: 'Its rollouts' }).click();
  await page.getByRole('rowheader', { name: 'run:0' }).waitFor();
});

test('lists are filtered, and go on page by page', { skip }, async () => {
  const { url } = await shared();
  const ask = async (query: string) =>
    (await fetch(`${url}/v1/rollouts?${query}`)).json() as Promise<{
      rollouts: { rolloutId: string }[];
      next: string | null;
    }>;
  await until(async () => (await ask('outcome=completed')).rollouts.length === 5, 'all are listed');
  const seen: string[] = [];
  for (let after = ''; ; ) {
    const page = await ask(`outcome=completed&limit=3${after && `&after=${after}`}`);
    seen.push(...page.rollouts.map(({ rolloutId }) => rolloutId));
    if (page.next === null) break;
    after = page.next;
  }
  assert.deepEqual(seen.sort(), ['evil:0', 'lines:0', 'long:0', 'open:0', 'run:0']);
  assert.equal((await fetch(`${url}/v1/rollouts?after=nonsense`)).status, 422);

  const page = await open('rollouts');
  const rows = page.getByRole('rowheader');
  await until(async () => (await rows.count()) === 7, 'the page has all');
  await page.getByLabel('Outcome').selectOption('failed');
  await until(async () => (await rows.allInnerTexts()).sort().join() === 'evil:1,wrong:0', 'failed ones');
  await page.getByRole('link', { name: 'Clear' }).click();
  await page.getByLabel('Id begins with').fill('li');
  await page.keyboard.press('Enter');
  await until(async () => (await rows.count()) === 5, 'by the beginning of an id');
  await page.getByLabel('Batch').fill('step-1');
  await page.keyboard.press('Enter');
  await until(async () => (await rows.allInnerTexts()).join() === 'lines:0', 'by batch as well');
  assert.match(page.url(), /#\/rollouts\?.*batchId=step-1/);
  await shoot(page, 'list');
});

test('a token is asked for where the gateway wants one, and kept for the tab alone', { skip }, async () => {
  const token = await service.token('reader', 'read');
  const { url } = await service.gateway({ guarded: true });
  const page = await open('rollouts/lines:0', url);
  await page.getByLabel('Token').fill('not-it');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('a token is needed').waitFor();
  await page.getByLabel('Token').fill(token);
  await page.keyboard.press('Enter');
  await page.getByText('There are 2 lines.').waitFor();
  assert.equal(await page.evaluate('localStorage.length'), 0);
  await page.reload();
  await page.getByText('There are 2 lines.').waitFor();
  await page.getByRole('button', { name: 'Forget the token' }).click();
  await page.getByLabel('Token').waitFor();
  assert.equal(await page.evaluate('sessionStorage.length'), 0);
});

test('a group stands side by side, and a batch is live', { skip }, async () => {
  const { tokenizer, url } = await shared();
  const goOn = gate();
  const keep = evaluateKeeping(store, await ledgerOf(tokenizer, 'How many lines has a.txt?', TURNS));
  service.service.workers.script.evaluate = async (input) => {
    if (input.request.task.id === 'second') await goOn.passed;
    return keep(input);
  };
  const tasks = ['first', 'second'].map((id) => ({ ...TASK, id }));
  const rules = { groups: 2, oversampling: 1, dropEqual: false };
  const body = JSON.stringify({ batchId: 'step-2', sources: [{ tasks }], rules, group: { samples: 2 } });
  const headers = { 'content-type': 'application/json' };
  assert.equal((await fetch(`${url}/v1/batches`, { method: 'POST', headers, body })).status, 202);
  const page = await open('batches');
  await page.getByRole('link', { name: 'step-2' }).click();
  await page.getByText('open: 1 of 2 groups').waitFor();
  const groups = page.getByRole('region', { name: 'Groups' });
  await groups.getByRole('row', { name: /^step-2.* admitted/ }).waitFor();
  await groups.getByRole('row', { name: /^step-2.* started/ }).waitFor();
  goOn.open();
  await page.getByText('full: 2 of 2 groups').waitFor();
  await until(
    async () => (await groups.getByRole('row', { name: / admitted/ }).count()) === 2,
    'both are in',
  );
  await shoot(page, 'batch');
  await groups.getByRole('link').first().click();
  const samples = page.getByRole('list', { name: 'Samples' });
  await page.getByText('allEqual').waitFor();
  assert.equal(await samples.locator('> section').count(), 2);
  for (const at of [0, 1]) {
    const sample = page.locator('.sample').nth(at);
    await sample.getByText('There are 2 lines.').waitFor();
    await sample.getByText('completed').waitFor();
    await sample.getByText('reward 0.5').waitFor();
  }
  await shoot(page, 'group');
  await samples.getByRole('link', { name: 'turn 2' }).first().click();
  await page.getByRole('article', { name: 'Turn 2 of 2' }).getByText('There are 2 lines.').waitFor();
});
