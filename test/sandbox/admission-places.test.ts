import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SandboxAdmission } from '../../workers/admission.ts';

/** Of a permit that a task had. */
const used = { slotInfo: { type: 'activity', activityType: 'init' } } as const;

const HOST = { host: 'a', backend: 'bubblewrap', graders: 0, graderCapacity: 1, pid: 1 } as const;

/** An admission to a host that says what it is told to: its count is all that matters here. */
function admissionTo(capacity: number, slots: number, most?: () => number) {
  const host = { sandboxes: 0, capacity };
  const answers: (() => void)[] = [];
  /** True: answers wait until they are let go, and say what the host had when it was asked. */
  const held = { on: false };
  const stats = async () => {
    const answer = { ...HOST, ...host };
    if (held.on) await new Promise<void>((resolve) => answers.push(resolve));
    return answer;
  };
  const admission = new SandboxAdmission({
    sandboxes: { stats },
    disk: { hasRoom: async () => true },
    slots,
    ...(most && { most }),
  });
  const leave = new AbortController();
  const reserve = () => admission.reserveSlot(undefined, leave.signal);
  /** Whether one more would be let in at once. */
  const isFull = async () => {
    const one = new AbortController();
    const asked = admission.reserveSlot(undefined, one.signal).then(
      () => false,
      () => true,
    );
    await new Promise((resolve) => setImmediate(resolve));
    one.abort();
    const full = await asked;
    if (!full) admission.releaseSlot({});
    return full;
  };
  const make = () => {
    host.sandboxes++;
    admission.sandboxMade();
  };
  return { admission, host, held, answers, reserve, isFull, make };
}

test('who waits for a place when the worker is told to stop ends with the reason itself, as the SDK wants it', async () => {
  const { admission } = admissionTo(0, 1);
  const leave = new AbortController();
  const waiting = admission.reserveSlot(undefined, leave.signal);
  leave.abort('told to stop');
  await assert.rejects(waiting, (reason) => reason === 'told to stop');
});

test('a sandbox that is made and still prepared takes one place, not two', async () => {
  const { admission, host, reserve, isFull, make } = admissionTo(4, 4);
  await reserve();
  await reserve();
  make();
  make();
  await reserve();
  await reserve();
  assert.equal(await isFull(), true, 'two made and two to be made');
  make();
  admission.releaseSlot(used); // the first is prepared, its sandbox stays
  assert.equal(await isFull(), true);
  host.sandboxes--; // its agent has ended
  assert.equal(await isFull(), false);
});

test('a permit that came to nothing gives its place back, whichever ends first', async () => {
  const { admission, reserve, isFull, make } = admissionTo(2, 8);
  await reserve();
  await reserve();
  make();
  admission.releaseSlot(used); // the other one failed before it had a sandbox
  admission.releaseSlot(used);
  assert.equal(await isFull(), false, 'one sandbox is there');
  await reserve();
  assert.equal(await isFull(), true);
});

test('what is made while the host answers is counted', async () => {
  const { admission, held, answers, reserve, isFull, make } = admissionTo(2, 8);
  await reserve();
  await reserve();
  admission.releaseSlot({}); // nothing came
  held.on = true;
  const late = isFull();
  make(); // after the host was asked: its answer does not have it
  held.on = false;
  answers.shift()?.();
  assert.equal(await late, false);
  await reserve();
  assert.equal(await isFull(), true, 'one is there and one to be made');
});

test('no more are prepared at once than there are slots', async () => {
  const { reserve, isFull, make } = admissionTo(100, 2);
  await reserve();
  await reserve();
  make();
  assert.equal(await isFull(), true);
});

test('no more agents are let in than the LLM servers take, those of before included', async () => {
  let most = 2;
  const { admission, host, reserve, isFull, make } = admissionTo(10, 10, () => most);
  await reserve();
  make();
  await reserve();
  assert.equal(await admission.agents(), 2);
  assert.equal(await isFull(), true);
  most = 3;
  assert.equal(await isFull(), false);
  most = 1;
  host.sandboxes--; // the first agent has ended, one is to be made
  assert.equal(await isFull(), true);
  most = Number.POSITIVE_INFINITY;
  assert.equal(await isFull(), false);
});
